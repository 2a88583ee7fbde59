"""Programs for people who work on Hetuflow; nothing of them is installed."""
