"""The stream of changes of tasks."""
