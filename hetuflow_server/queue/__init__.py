"""The queue: tasks and instances are created, claimed, finished and rescued."""
