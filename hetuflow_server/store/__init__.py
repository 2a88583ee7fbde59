"""The only place that holds SQL."""
