"""The judge: pure functions over histories, with no line of the product in them."""
