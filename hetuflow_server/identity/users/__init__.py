"""Users and their grants."""
