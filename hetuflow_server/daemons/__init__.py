"""Daemons: long-running work with restarts."""
