"""Records on disk that survive a crash of the agent."""
