"""Roles, permissions, and the mapping of identity-provider groups to roles."""
