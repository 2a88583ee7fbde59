"""Folders of the agent on disk: its own, and one for each claim."""
