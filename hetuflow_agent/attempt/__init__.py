"""Runs assignments: one attempt is one sequence of named steps."""
