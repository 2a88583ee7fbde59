"""Lists that may be long."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final, TypeVar

import click

from hetuflow_server.cli.invocation import Invocation

T = TypeVar("T")

LARGEST_PAGE: Final = 500

all_namespaces_option = click.option(
    "-A", "--all-namespaces", is_flag=True, help="Those of every namespace you may see."
)
limit_option = click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=50,
    show_default=True,
    metavar="N",
    help="How many at most.",
)


def page_size(limit: int) -> int:
    """One more than wanted, to know whether there are more."""
    return min(limit + 1, LARGEST_PAGE)


def take(invocation: Invocation, items: Iterable[T], limit: int) -> list[T]:
    """The first `limit`, with a word when that is not all."""
    taken = list(islice(items, limit + 1))
    if len(taken) > limit:
        invocation.note("There are more: raise --limit to see them.")
    return taken[:limit]
