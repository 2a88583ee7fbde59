"""Logging in with a password: sessions and access tokens."""
