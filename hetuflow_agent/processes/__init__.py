"""The agent's side of the keeper: commands are handed over here, and come back as exits."""
