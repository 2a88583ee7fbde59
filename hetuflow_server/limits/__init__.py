"""Limits: how many instances may run at once under a name."""
