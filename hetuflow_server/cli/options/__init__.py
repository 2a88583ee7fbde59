"""Options and arguments and their parsing."""
