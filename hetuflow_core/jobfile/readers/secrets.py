"""Raw documents of kind `secret`, and where jobs name secrets.

kind: secret
name: api-token
from: {env: API_TOKEN}      # or {file: token.txt}, or {stdin: true}
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hetuflow_core.jobfile.documents import DEFAULT_NAMESPACE, SecretSource, SecretSpec, SecretUse
from hetuflow_core.jobfile.readers.names import read_name
from hetuflow_core.jobfile.value_reader import ValueReader, each, listed
from hetuflow_core.secret_values import value_fault

SECRET_KEYS: Final = ("kind", "namespace", "name", "value", "from")
SECRET_USE_KEYS: Final = ("secret", "prefix")
_LONGEST_PREFIX: Final = 256


def read_secret(given: ValueReader) -> SecretSpec | None:
    section = given.section(SECRET_KEYS)
    if section is None:
        return None
    namespace = section.read("namespace", read_name, DEFAULT_NAMESPACE)
    name = section.require("name", read_name, "name the secret")
    value = section.read("value", read_secret_value, None)
    source = section.read("from", _source, None)
    if ("value" in section.present) == ("from" in section.present):
        given.refuse("either value or from is given: say where the value comes from.")
    if name is None:
        return None
    kind, source_name = source or (None, None)
    return SecretSpec(namespace=namespace, name=name, value=value, source=kind, source_name=source_name)


def read_secret_value(given: ValueReader) -> str | None:
    # Not `text`, which would repeat in its fault what was given.
    value = given.node.value
    if not isinstance(value, str):
        given.refuse("must be text: put it in quotes.")
        return None
    fault = value_fault(value)
    if fault is not None:
        given.refuse(fault)
        return None
    return value


def is_secret_use(given: ValueReader) -> bool:
    return isinstance(given.node.value, Mapping)


def read_secret_use(given: ValueReader) -> SecretUse | None:
    """`{secret: name}`, with `prefix` for what stands before it."""
    section = given.section(SECRET_USE_KEYS)
    if section is None:
        return None
    name = section.require("secret", read_name, "name the secret, or write a text")
    prefix = section.read("prefix", _prefix, "")
    return None if name is None else SecretUse(secret=name, prefix=prefix)


def read_secret_names(given: ValueReader) -> tuple[str, ...]:
    return tuple(sorted(set(each(given, read_name))))


def _prefix(given: ValueReader) -> str | None:
    text = given.text()
    if text is None:
        return None
    if len(text) > _LONGEST_PREFIX or not text.isprintable() or "{{" in text:
        given.refuse(f"must be up to {_LONGEST_PREFIX} printable characters, and no template.")
        return None
    return text


def _source(given: ValueReader) -> tuple[SecretSource, str | None] | None:
    section = given.section(tuple(SecretSource))
    if section is None:
        return None
    if len(section.present) != 1:
        given.refuse(f"names one place to take the value from: use {listed(SecretSource)}.")
        return None
    ((key, where),) = section.present.items()
    kind = SecretSource(key)
    if kind is SecretSource.STDIN:
        if where.node.value is not True:
            where.refuse("is written as stdin: true.")
            return None
        return kind, None
    name = where.text()
    return None if name is None else (kind, name)
