"""The agent gateway: what agents call."""
