"""Explanation of why a task is waiting."""
