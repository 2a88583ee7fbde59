"""What can be run, and how: one small interface, found through entry points."""
