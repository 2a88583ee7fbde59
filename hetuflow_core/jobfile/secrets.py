"""Documents of kind `secret`, and where jobs use secrets.

kind: secret
name: api-token
from: {env: API_TOKEN}      # or {file: token.txt}, or {stdin: true}
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, ClassVar, Final

import msgspec

from hetuflow_core.fields import NAME, TEXT, Form, Key, OneOf, ValueReader, Written, text_unless
from hetuflow_core.fields.value_reader import listed
from hetuflow_core.jobfile.kinds import DEFAULT_NAMESPACE, Kind, Namespace
from hetuflow_core.secret_values import value_fault

_LONGEST_PREFIX: Final = 256


class SecretSource(StrEnum):
    """Where the command line takes a secret's value from."""

    ENV = "env"
    FILE = "file"
    STDIN = "stdin"


def _read_value(given: ValueReader) -> str | None:
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


def _read_stdin(given: ValueReader) -> bool | None:
    if given.node.value is not True:
        given.refuse("is written as stdin: true.")
        return None
    return True


def _prefix_fault(text: str) -> str | None:
    if len(text) <= _LONGEST_PREFIX and text.isprintable() and "{{" not in text:
        return None
    return f"must be up to {_LONGEST_PREFIX} printable characters, and no template."


_PREFIX: Final = text_unless(_prefix_fault, {"type": "string", "maxLength": _LONGEST_PREFIX})
_ONE_PLACE: Final = f"names one place to take the value from: use {listed(SecretSource)}."
_ONE_WAY: Final = "either value or from is given: say where the value comes from."


class SecretUse(msgspec.Struct, frozen=True, kw_only=True):
    """A secret of the job's namespace in place of a text."""

    secret: Annotated[str, NAME, Key("Name of the secret.", missing="name the secret, or write a text")]
    prefix: Annotated[str, _PREFIX, Key("Text before the value, such as `Bearer `.", written=Written.SET)] = (
        ""
    )


class SecretOrigin(msgspec.Struct, frozen=True, kw_only=True):
    RULES: ClassVar = (OneOf(tuple(SecretSource), _ONE_PLACE, _ONE_PLACE),)

    env: Annotated[str | None, TEXT, Key("Environment variable of the command.")] = None
    file: Annotated[str | None, TEXT, Key("File, relative to the job file.")] = None
    stdin: Annotated[
        bool | None, Form(_read_stdin, {"const": True}, summary="true"), Key("Standard input of the command.")
    ] = None


class SecretSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Either `value` or `origin` is set; a server takes values only. Neither is ever written out again."""

    kind: ClassVar[Kind] = Kind.SECRET
    RULES: ClassVar = (OneOf(("value", "from"), _ONE_WAY, _ONE_WAY),)

    namespace: Namespace = DEFAULT_NAMESPACE
    name: Annotated[str, NAME, Key("Name of the secret.", missing="name the secret")]
    value: Annotated[
        str | None,
        Form(_read_value, TEXT.json_schema(), summary="text, 4 characters to 64 KiB"),
        Key("The value itself; keep such a file secret.", written=Written.NEVER),
    ] = None
    origin: Annotated[
        SecretOrigin | None,
        Key("Where the command line takes the value from when it applies the file.", written=Written.NEVER),
    ] = msgspec.field(name="from", default=None)

    @property
    def source(self) -> SecretSource | None:
        origin = self.origin
        if origin is None:
            return None
        if origin.env is not None:
            return SecretSource.ENV
        return SecretSource.STDIN if origin.file is None else SecretSource.FILE

    @property
    def source_name(self) -> str | None:
        """The name of the variable or the file."""
        return None if self.origin is None else self.origin.env or self.origin.file

    def __repr__(self) -> str:
        return f"SecretSpec(namespace={self.namespace!r}, name={self.name!r})"
