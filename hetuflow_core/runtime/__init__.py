"""Process infrastructure of servers and agents: configuration, clock, loops, logging, lifecycle."""
