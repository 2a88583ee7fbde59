"""The composition root: constructs all parts and defines their order."""
