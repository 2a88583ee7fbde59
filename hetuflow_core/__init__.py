"""The words and pure decisions of Hetuflow, shared by both sides; it imports neither."""

__version__ = "0.1.0"
