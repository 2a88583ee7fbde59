"""Other systems a user would pick, installed on demand and measured in the same run."""
