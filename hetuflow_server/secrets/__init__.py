"""Secrets: encrypted values delivered to tasks."""
