"""Texts of a job file that hold expressions."""

from __future__ import annotations

from hetuflow_core import templates
from hetuflow_core.errors import Invalid
from hetuflow_core.jobfile.given import Given


def read_template(given: Given) -> str | None:
    text = given.words()
    if text is None:
        return None
    try:
        templates.check(text, given.scope.names if given.scope else templates.NAMES)
    except Invalid as error:
        given.refuse(error.message)
        return None
    if given.scope is not None:
        given.scope.texts.append((given, text))
    return text
