"""The audit trail: written, sealed, read."""
