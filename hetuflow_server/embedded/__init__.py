"""A PostgreSQL of our own for development and tests."""
