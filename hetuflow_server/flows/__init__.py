"""Flows: runs begin, advance with the end of each node, and end; people have their say."""
