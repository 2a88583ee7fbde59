"""Runs what was assigned: one attempt is one pipeline of named steps."""
