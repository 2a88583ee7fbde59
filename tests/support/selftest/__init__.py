"""Histories of a self-test, correct and with planted faults."""
