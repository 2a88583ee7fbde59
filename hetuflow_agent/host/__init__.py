"""Facts about the host: resources, load, users."""
