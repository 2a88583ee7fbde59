"""Lists of tasks and instances."""
