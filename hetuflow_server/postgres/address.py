"""One database address, in the spelling each library wants."""

from __future__ import annotations


def libpq_url(url: str) -> str:
    """Return the address as psycopg reads it."""
    return f"postgresql://{url.partition('://')[2]}"


def sqlalchemy_url(url: str) -> str:
    """Return the address as SQLAlchemy and alembic read it."""
    return f"postgresql+psycopg://{url.partition('://')[2]}"
