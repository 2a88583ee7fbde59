"""PostgreSQL: sessions, pipelines, pool, batches, and pieces of SQL; knows no subject."""
