"""A PostgreSQL of our own for development and tests."""

from hetuflow_server.embedded.binaries import Binaries, find_binaries
from hetuflow_server.embedded.cluster import EmbeddedPostgres

__all__ = ["Binaries", "EmbeddedPostgres", "find_binaries"]
