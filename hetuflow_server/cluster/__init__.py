"""Cooperation between servers: leadership, ownership of namespaces, membership, wake-ups."""
