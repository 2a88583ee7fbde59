"""Texts of a job file that hold expressions."""

from __future__ import annotations

from hetuflow_core.errors import Invalid
from hetuflow_core.fields.value_reader import ValueReader
from hetuflow_core.templates import rendering


def read_template(given: ValueReader) -> str | None:
    text = given.words()
    if text is None:
        return None
    try:
        rendering.check(text, given.scope.names if given.scope else rendering.NAMES)
    except Invalid as error:
        given.refuse(error.message)
        return None
    if given.scope is not None:
        given.scope.texts.append((given, text))
    return text
