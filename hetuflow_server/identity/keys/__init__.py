"""API keys of people and programs, and tokens of agents."""
