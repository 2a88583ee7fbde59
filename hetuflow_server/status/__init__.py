"""The state of the system: overview and health."""
