"""Overlap policies: fires held while an earlier one runs."""
