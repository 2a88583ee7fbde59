"""The loops of the agent that talk to the server."""
