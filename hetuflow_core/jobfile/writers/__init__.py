"""Specs back to documents: canonical form and short form."""
