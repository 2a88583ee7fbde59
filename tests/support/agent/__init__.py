"""Agents under test: their hosts, keepers, assignments and connections."""
