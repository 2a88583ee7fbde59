"""Templates as values of documents."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, Final, TypeVar

from hetuflow_core.errors import Invalid
from hetuflow_core.fields import Form, TemplateScope, ValueReader, json_schema
from hetuflow_core.fields.nodes import plain
from hetuflow_core.templates import rendering

T = TypeVar("T")


def _read_template(given: ValueReader) -> str | None:
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


def _read_value(given: ValueReader) -> Any:
    before = len(given.faults)
    _check_texts(given)
    return plain(given.node) if len(given.faults) == before else None


def _check_texts(given: ValueReader) -> None:
    value = given.node.value
    if isinstance(value, str):
        _read_template(given)
    elif isinstance(value, Mapping):
        for item in (given.entries() or {}).values():
            _check_texts(item)
    elif isinstance(value, tuple):
        for item in given.items() or []:
            _check_texts(item)


def _read_object(given: ValueReader) -> dict[str, Any] | None:
    if given.entries() is None:
        return None
    value: dict[str, Any] | None = _read_value(given)
    return value


TEMPLATE: Final = Form(_read_template, json_schema.TEMPLATE, summary="template")
# Any JSON value; every text in it is a template.
TEMPLATE_VALUE: Final[Form[Any]] = Form(
    _read_value, json_schema.ANYTHING, summary="any value, its texts are templates"
)
TEMPLATE_OBJECT: Final = Form(_read_object, json_schema.OBJECT, summary="mapping, its texts are templates")


def scoped(form: Form[T], names: tuple[str, ...]) -> Form[T]:
    """The same form, in which templates may use these names."""
    return replace(form, read=lambda given: form.read(given.within(TemplateScope(names))))
