"""The REST calls by subject, each written once for both clients."""
