"""Agents: sessions, administration, commands."""
