"""Processes that tests start, watch and end."""
