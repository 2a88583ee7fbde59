"""Loads settings: defaults, then `app.toml`, then `HETUFLOW_SECTION__KEY`, then `HETUFLOW_SECTION__KEY_FILE`.

All faults are found before any is reported, each with the place it was set at. Sections are declared with
`Section`, `Settings` and `Key` (see `keys.py`); environment and paths are arguments.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Generic, TypeVar

from hetuflow_core.errors import ConfigInvalid, Fault, Invalid
from hetuflow_core.runtime.config.keys import (
    ENV_PREFIX,
    MASK,
    Derived,
    HostFacts,
    Key,
    KeySpec,
    SecretText,
    Section,
    SectionSpec,
    Settings,
    sections_of,
)
from hetuflow_core.runtime.config.sources import (
    SYSTEM_PATH,
    ConfigFile,
    GivenSetting,
    find_config_file,
    given_in_environment,
    given_in_file,
    read_config_file,
)
from hetuflow_core.runtime.config.values import Place, accept, check_limits, plain, refusal, rule_fault, shown

__all__ = [
    "ENV_PREFIX",
    "MASK",
    "Derived",
    "HostFacts",
    "Key",
    "Loaded",
    "SecretText",
    "Section",
    "Settings",
    "load",
    "load_settings",
    "without_secrets",
]

DEFAULT = "default"

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """Settings together with where they came from."""

    settings: S
    file: Path | None
    origins: Mapping[str, str]  # key path → "default", "FILE:LINE" or a variable's name
    skipped: tuple[str, ...]  # foreign sections that were met


def load_settings(
    settings_type: type[S],
    *,
    config_path: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    host: HostFacts | None = None,
) -> S:
    """The settings, or ConfigInvalid with every fault; `env` and `cwd` are the process's own if not given."""
    return load(settings_type, config_path=config_path, env=env, cwd=cwd, host=host).settings


def load(
    settings_type: type[S],
    *,
    config_path: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    host: HostFacts | None = None,
    system_path: Path = SYSTEM_PATH,
) -> Loaded[S]:
    env = os.environ if env is None else env
    cwd = Path.cwd() if cwd is None else cwd
    host = HostFacts.here(env) if host is None else host
    sections = sections_of(settings_type)
    foreign = settings_type.foreign_sections
    faults: list[Fault] = []

    path = find_config_file(Path(config_path) if config_path is not None else None, env, cwd, system_path)
    file = read_config_file(path, faults) if path is not None else None
    given = list(given_in_file(file, sections, foreign, faults)) if file is not None else []
    given += given_in_environment(env, cwd, sections, foreign, faults)

    intake = _Intake(
        given, Place(cwd, host.home), host, faults, file_unread=path is not None and file is None
    )
    built = {section.name: intake.build(section) for section in sections}
    if faults:
        raise ConfigInvalid(_summary(path, len(faults)), faults=faults)
    skipped = tuple(name for name in foreign if _is_met(name, file, env))
    return Loaded(settings_type(**built), path, intake.origins, skipped)


def without_secrets(settings: Settings) -> dict[str, dict[str, Any]]:
    """Section → key → value as JSON holds it, every secret masked."""
    return {
        section.name: {
            spec.name: plain(getattr(getattr(settings, section.name), spec.name)) for spec in section.keys
        }
        for section in sections_of(type(settings))
    }


class _Intake:
    """Turns what was given into sections, noting faults and origins on the way."""

    def __init__(
        self,
        given: Sequence[GivenSetting],
        place: Place,
        host: HostFacts,
        faults: list[Fault],
        *,
        file_unread: bool,
    ) -> None:
        self._given: dict[str, list[GivenSetting]] = defaultdict(list)
        for one in given:
            self._given[one.spec.path].append(one)
        self._place = place
        self._host = host
        self._faults = faults
        self._file_unread = file_unread
        self._where: dict[str, str] = {}
        self.origins: dict[str, str] = {}

    def build(self, section: SectionSpec) -> Section | None:
        values: dict[str, Any] = {}
        for number, spec in enumerate(section.keys):
            above = values if len(values) == number else None
            for value in self._value(spec, above):
                values[spec.name] = value
        if len(values) < len(section.keys):
            return None
        built = section.type(**values)
        for fault in built.check():
            path = f"{section.name}.{fault.field}"
            self._faults.append(Fault(self._where.get(path, path), fault.message))
        return built

    def _value(self, spec: KeySpec, above: Mapping[str, Any] | None) -> Iterator[Any]:
        """The value of a key, or nothing if it has none that holds; a fault says why.

        `above` has the values a default may follow from, None if one of them is at fault.
        """
        given = self._given[spec.path]
        if given:
            # Values that a stronger source overrides are looked at too: a fault there is still a fault.
            taken = [value for one in given for value in self._accepted(one)]
            self.origins[spec.path] = given[-1].origin
            self._where[spec.path] = given[-1].where
            yield from taken[-1:] if len(taken) == len(given) else ()
            return
        self.origins[spec.path] = DEFAULT
        if spec.key.derived is not None:
            if above is not None:
                yield from self._derived(spec, spec.key.derived, above)
        elif not spec.required:
            yield copy(spec.default)
        elif not self._file_unread:
            # With the file unread, a missing key most likely stands in it.
            message = f"is required: set it under [{spec.section}] in app.toml, or set {spec.env}"
            self._faults.append(Fault(spec.path, message + (f" or {spec.env}_FILE" if spec.secret else "")))

    def _accepted(self, one: GivenSetting) -> Iterator[Any]:
        try:
            value = accept(one.spec, one.raw, self._place)
        except Invalid as error:
            self._faults.append(Fault(one.where, refusal(error, one.raw, showable=one.showable)))
            return
        broken = rule_fault(one.spec, value)
        if broken is None:
            yield value
        else:
            self._faults.append(Fault(one.where, broken))

    def _derived(self, spec: KeySpec, derived: Derived, above: Mapping[str, Any]) -> Iterator[Any]:
        value = derived.of(above, self._host)
        broken = _limits_fault(spec, value) or rule_fault(spec, value)
        if broken is None:
            yield value
        else:
            self._faults.append(
                Fault(spec.path, f"{broken}, and its default {shown(plain(value))} is not: set it")
            )


def _limits_fault(spec: KeySpec, value: Any) -> str | None:
    try:
        check_limits(spec, value)
    except Invalid as error:
        return error.message
    return None


def _summary(path: Path | None, count: int) -> str:
    source = f"the configuration in {path} and the environment" if path else "the configuration"
    return f"{source} cannot be used: correct the {'fault' if count == 1 else f'{count} faults'} listed."


def _is_met(section: str, file: ConfigFile | None, env: Mapping[str, str]) -> bool:
    prefix = f"{ENV_PREFIX}{section.upper()}__"
    return (file is not None and section in file.table) or any(name.startswith(prefix) for name in env)
