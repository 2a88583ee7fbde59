"""The formats of job files: JSON, TOML and YAML, read with the place of every value."""
