"""Tasks: lists, details, actions."""
