"""Maintenance: partitions, expiry, consistency checks (`doctor`)."""
