"""Actions on many tasks, jobs or schedules at once."""
