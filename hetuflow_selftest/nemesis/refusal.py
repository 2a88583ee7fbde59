"""What a fault says that cannot be made here."""

from __future__ import annotations


class NotHere(Exception):
    """The fault cannot be made on this machine."""
