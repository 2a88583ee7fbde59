"""One database address, in the format of each library."""

from __future__ import annotations


def libpq_url(url: str) -> str:
    """Return the address for psycopg."""
    return f"postgresql://{url.partition('://')[2]}"


def sqlalchemy_url(url: str) -> str:
    """Return the address for SQLAlchemy and alembic."""
    return f"postgresql+psycopg://{url.partition('://')[2]}"
