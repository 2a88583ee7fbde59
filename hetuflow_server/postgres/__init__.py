"""A small PostgreSQL library for all stores of the server; README.md documents it with examples.

Sessions with pipelined round trips and prepared statements (`connection`, `pipeline`), pooled (`pool`);
transactions, single statements and batched reads (`database`); one transaction around several others
(`enclosing_transaction`); batches of rows (`batches`) and of requests (`coalescing`); keyset pages
(`keyset`); daily partitions (`partitions`); schema versions (`schema_version`).
"""
