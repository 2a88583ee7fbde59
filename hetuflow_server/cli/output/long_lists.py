"""Limit the length of lists."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar

import click

from hetuflow_server.cli.invocation import Invocation

T = TypeVar("T")

LARGEST_PAGE: Final = 500

all_namespaces_option = click.option(
    "-A", "--all-namespaces", is_flag=True, help="List all namespaces that you have access to."
)
limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="Maximum number of results.",
)


def page_size(limit: int) -> int:
    """Request one more than the limit, to detect that there are more."""
    return min(limit + 1, LARGEST_PAGE)


def take(invocation: Invocation, items: Iterable[T], limit: int) -> list[T]:
    """Return the first `limit` items and note if there are more."""
    taken = list(islice(items, limit + 1))
    if len(taken) > limit:
        invocation.note("There are more results: raise --limit to see them.")
    return taken[:limit]
