"""What the tests share: a PostgreSQL, databases in it, and waiting for conditions."""
