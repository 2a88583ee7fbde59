"""Declaration of settings: sections are frozen dataclasses, and each key is described in its annotation.

    @dataclass(frozen=True, slots=True, kw_only=True)
    class HttpSettings(SettingsSection):
        '''The address this server listens on.'''

        port: Annotated[int, Setting("TCP port.", least=0, most=65535)] = 8600

The loader, the template, the reference page and `config show` use only these declarations.
A key without a default and without `derived` is required. A key of type `SecretText` is never shown.
"""

from __future__ import annotations

import enum
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import MISSING, Field, dataclass, fields
from datetime import timedelta
from pathlib import Path
from types import NoneType, UnionType
from typing import Annotated, Any, ClassVar, Literal, TypeAlias, Union, get_args, get_origin, get_type_hints

from hetuflow_core.errors import Fault

ENV_PREFIX = "HETUFLOW_"
MASK = "********"


class SecretText:
    """Secret text: printing, formatting or logging shows a mask; `reveal()` returns the text."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        return self._text

    def __str__(self) -> str:
        return MASK

    def __repr__(self) -> str:
        return f"Secret({MASK!r})"

    def __format__(self, format_spec: str) -> str:
        return format(MASK, format_spec)

    def __eq__(self, other: object) -> bool:
        return self._text == other._text if isinstance(other, SecretText) else NotImplemented

    def __hash__(self) -> int:
        return hash((SecretText, self._text))


@dataclass(frozen=True, slots=True)
class HostFacts:
    """Properties of the machine that defaults may depend on; an argument, so that tests can choose them."""

    name: str
    cpus: int
    home: Path | None
    is_root: bool

    @classmethod
    def here(cls, env: Mapping[str, str]) -> HostFacts:
        # A container with a cpuset can use only the CPUs of its affinity mask.
        cpus = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
        home = env.get("HOME")
        return cls(
            name=os.uname().nodename,
            cpus=cpus or 1,
            home=Path(home) if home else None,
            is_root=os.geteuid() == 0,
        )


@dataclass(frozen=True, slots=True)
class Derived:
    """A default computed while loading, from the preceding keys of its section and from the host."""

    text: str  # description for users: "a quarter of ttl"
    of: Callable[[Mapping[str, Any], HostFacts], Any]


Bound: TypeAlias = int | timedelta


@dataclass(frozen=True, slots=True)
class Setting:
    """Description and accepted values of a key; part of its `Annotated` type."""

    doc: str
    least: Bound | None = None
    most: Bound | None = None
    min_length: int = 0
    # Returns the fault of a value of the right type, or None. The message must not contain a secret.
    rule: Callable[[Any], str | None] | None = None
    derived: Derived | None = None
    example: Any = None  # for keys that have no fixed default


class SettingsSection:
    """A `[section]` of the configuration; its docstring is its description for users."""

    __slots__ = ()

    def check(self) -> Iterable[Fault]:
        """Check rules between keys. `field` of each fault is the key's name; the loader adds its location."""
        return ()


class Settings:
    """All sections that a program reads, one field per section."""

    __slots__ = ()

    # Sections of other programs that may be in the same file, with the program that checks them.
    foreign_sections: ClassVar[Mapping[str, str]] = {}


class KeyKind(enum.Enum):
    TEXT = "text"
    SECRET = "secret text"  # noqa: S105 - the name of a kind, not a password
    INTEGER = "whole number"
    BOOLEAN = "true or false"
    DURATION = "duration"
    PATH = "path"
    CHOICE = "choice"
    LIST = "list of texts"
    MAP = "map of texts"


_KINDS: dict[object, KeyKind] = {
    str: KeyKind.TEXT,
    SecretText: KeyKind.SECRET,
    int: KeyKind.INTEGER,
    bool: KeyKind.BOOLEAN,
    timedelta: KeyKind.DURATION,
    Path: KeyKind.PATH,
    tuple[str, ...]: KeyKind.LIST,
    Mapping[str, str]: KeyKind.MAP,
}


@dataclass(frozen=True, slots=True)
class KeySpec:
    """A declared key, from its dataclass field."""

    section: str
    name: str
    kind: KeyKind
    choices: tuple[str, ...]
    optional: bool  # "not set" is a value: `None`
    required: bool
    default: Any
    key: Setting

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def env(self) -> str:
        return f"{ENV_PREFIX}{self.section.upper()}__{self.name.upper()}"

    @property
    def secret(self) -> bool:
        return self.kind is KeyKind.SECRET


@dataclass(frozen=True, slots=True)
class SectionSpec:
    name: str
    doc: str
    type: type[SettingsSection]
    keys: tuple[KeySpec, ...]


def sections_of(settings_type: type[Settings]) -> tuple[SectionSpec, ...]:
    return tuple(
        SectionSpec(name, (section_type.__doc__ or "").strip(), section_type, _keys_of(name, section_type))
        for name, section_type in get_type_hints(settings_type).items()
        if isinstance(section_type, type) and issubclass(section_type, SettingsSection)
    )


def _keys_of(section: str, section_type: type[SettingsSection]) -> tuple[KeySpec, ...]:
    hints = get_type_hints(section_type, include_extras=True)
    return tuple(
        _key_spec(section, hints[field.name], field)
        for field in fields(section_type)  # type: ignore[arg-type]  # every declared section is a dataclass
    )


def _key_spec(section: str, hint: Any, field: Field[Any]) -> KeySpec:
    if get_origin(hint) is not Annotated:
        raise TypeError(f"{section}.{field.name} must be declared as Annotated[type, Setting(…)]")
    declared, key = get_args(hint)
    optional = get_origin(declared) in (Union, UnionType) and NoneType in get_args(declared)
    if optional:
        (declared,) = (part for part in get_args(declared) if part is not NoneType)
    default = field.default_factory() if field.default_factory is not MISSING else field.default
    choices = get_args(declared) if get_origin(declared) is Literal else ()
    return KeySpec(
        section=section,
        name=field.name,
        kind=KeyKind.CHOICE if choices else _KINDS[declared],
        choices=choices,
        optional=optional,
        required=default is MISSING and key.derived is None,
        default=None if default is MISSING else default,
        key=key,
    )
