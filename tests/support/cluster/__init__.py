"""Roles of servers in tests."""
