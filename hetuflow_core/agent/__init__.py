"""Commands and configuration that the server sends to agents."""
