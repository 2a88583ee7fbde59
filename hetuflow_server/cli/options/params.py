"""Parse `name=value` arguments: parameters and labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
import msgspec


def parse_params(arguments: Iterable[str]) -> dict[str, Any]:
    """Parse each value as JSON (`3`, `true`, `null`, `{"a": 1}`), or else as text.

    To pass text that is also valid JSON, quote it: `-p 'zip="01234"'`.
    """
    params: dict[str, Any] = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{argument!r} is not a parameter: write name=value.", param_hint="-p")
        if name in params:
            raise click.BadParameter(f"{name!r} is given twice.", param_hint="-p")
        params[name] = _value(value)
    return params


def parse_labels(arguments: Iterable[str]) -> dict[str, str]:
    labels = {}
    for argument in arguments:
        name, equals, value = argument.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{argument!r} is not a label: write name=value.", param_hint="--label")
        labels[name] = value
    return labels


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
