"""The agent's side of the keeper: sends commands and receives their exits."""
