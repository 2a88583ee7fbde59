"""Users, keys and an identity provider."""
