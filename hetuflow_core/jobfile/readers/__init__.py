"""Readers: one for each kind of document and each of its larger keys."""
