"""Logging in through an OpenID Connect provider."""
