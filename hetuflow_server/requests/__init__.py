"""Per-request state: principal, audit context, idempotency."""
