"""Filters that several lists share."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from difflib import get_close_matches
from typing import Annotated
from uuid import UUID

from litestar.params import QueryParameter

from hetuflow_core import ids
from hetuflow_core.errors import Fault, Invalid

NEWEST_FIRST = "-created_at"
Sort = Annotated[str, QueryParameter(description="`-created_at`, the newest first, or `created_at`.")]
Labels = Annotated[list[str] | None, QueryParameter(description="key=value; all of those given.")]


def labels_of(given: Sequence[str] | None) -> dict[str, str]:
    labels = {}
    for one in given or ():
        key, separator, value = one.partition("=")
        if not separator or not key:
            raise Invalid(f'"{one[:64]}" is no label: write it as key=value.')
        labels[key] = value
    return labels


def first_id_at(name: str, at: datetime | None) -> UUID | None:
    """Return the least id of that time: a range of ids is a range of time."""
    if at is None:
        return None
    try:
        return ids.first_id_at(at)
    except (ValueError, OverflowError) as error:
        raise Invalid(f"{name}: {error}; write it as RFC 3339 with an offset.") from error


def is_oldest_first(sort: str) -> bool:
    return one_of("sort", sort, (NEWEST_FIRST, "created_at")) != NEWEST_FIRST


def one_of(name: str, given: str, allowed: Sequence[str]) -> str:
    """Return what was given; refuse what is not allowed, with what is."""
    if given not in allowed:
        close = get_close_matches(given, allowed, 1)
        hint = f'did you mean "{close[0]}"?' if close else f"use one of {', '.join(allowed)}."
        fault = Fault(name, f'"{given[:64]}" is not known here: {hint}')
        raise Invalid("The list cannot be asked for like this.", code="query.invalid", faults=[fault])
    return given
