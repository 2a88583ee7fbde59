"""PostgreSQL for tests: clusters, databases, rows and plans."""
