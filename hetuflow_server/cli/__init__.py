"""The `hetuflow` command."""
