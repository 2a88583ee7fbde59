"""Configuration: declaration, sources and rendering of settings."""
