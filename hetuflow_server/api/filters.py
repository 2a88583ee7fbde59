"""Filters that several lists share."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from litestar.params import QueryParameter

from hetuflow_core.errors import Invalid

Labels = Annotated[list[str] | None, QueryParameter(description="key=value; all of those given.")]


def labels_of(given: Sequence[str] | None) -> dict[str, str]:
    labels = {}
    for one in given or ():
        key, separator, value = one.partition("=")
        if not separator or not key:
            raise Invalid(f'"{one[:64]}" is no label: write it as key=value.')
        labels[key] = value
    return labels
