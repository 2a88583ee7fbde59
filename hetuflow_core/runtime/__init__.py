"""The frame both sides run in: configuration, clock, loops, logging, lifecycle."""
