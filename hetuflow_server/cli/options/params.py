"""`name=value` on the command line: a task's params, and labels."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import click
import msgspec


def parse_params(written: Iterable[str]) -> dict[str, Any]:
    """Each value as JSON if it is JSON (`3`, `true`, `null`, `{"a": 1}`), else as the text it is.

    To pass a text that looks like JSON, quote it: `-p 'zip="01234"'`.
    """
    params: dict[str, Any] = {}
    for one in written:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{one!r} is not a parameter: write name=value.", param_hint="-p")
        if name in params:
            raise click.BadParameter(f"{name!r} is given twice: give it once.", param_hint="-p")
        params[name] = _value(value)
    return params


def parse_labels(written: Iterable[str]) -> dict[str, str]:
    labels = {}
    for one in written:
        name, equals, value = one.partition("=")
        if not equals or not name:
            raise click.BadParameter(f"{one!r} is no label: write name=value.", param_hint="--label")
        labels[name] = value
    return labels


def _value(text: str) -> Any:
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, UnicodeEncodeError):
        return text
