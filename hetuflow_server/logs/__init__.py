"""Logs of tasks: stored, read, followed."""
