"""Artifacts: files produced by tasks."""
