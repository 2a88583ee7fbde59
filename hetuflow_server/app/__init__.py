"""The composition root: the only place that constructs parts and knows their order."""
