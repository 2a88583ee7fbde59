"""What the surfaces and loops do with the store."""
