"""Load settings: defaults, then `app.toml`, then `HETUFLOW_SECTION__KEY`, then `HETUFLOW_SECTION__KEY_FILE`.

All faults are reported together, each with the location of the value. Sections are declared with
`SettingsSection`, `Settings` and `Setting` (see `keys.py`); environment and paths are arguments.
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
    KeySpec,
    SecretText,
    SectionSpec,
    Setting,
    Settings,
    SettingsSection,
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
    "Loaded",
    "SecretText",
    "Setting",
    "Settings",
    "SettingsSection",
    "load",
    "load_settings",
    "without_secrets",
]

DEFAULT = "default"

S = TypeVar("S", bound=Settings)


@dataclass(frozen=True, slots=True)
class Loaded(Generic[S]):
    """Settings and their origins."""

    settings: S
    file: Path | None
    origins: Mapping[str, str]  # key path → "default", "FILE:LINE" or a variable's name
    skipped: tuple[str, ...]  # sections of other programs


def load_settings(
    settings_type: type[S],
    *,
    config_path: str | Path | None = None,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    host: HostFacts | None = None,
) -> S:
    """Return the settings or raise ConfigInvalid with all faults; defaults are taken from the process."""
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

    builder = _SectionBuilder(
        given, Place(cwd, host.home), host, faults, file_unread=path is not None and file is None
    )
    built = {section.name: builder.build(section) for section in sections}
    if faults:
        raise ConfigInvalid(_summary(path, len(faults)), faults=faults)
    skipped = tuple(name for name in foreign if _is_present(name, file, env))
    return Loaded(settings_type(**built), path, builder.origins, skipped)


def without_secrets(settings: Settings) -> dict[str, dict[str, Any]]:
    """Return section → key → JSON value, with masked secrets."""
    return {
        section.name: {
            spec.name: plain(getattr(getattr(settings, section.name), spec.name)) for spec in section.keys
        }
        for section in sections_of(type(settings))
    }


class _SectionBuilder:
    """Builds sections from given values; collects faults and origins."""

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
        for setting in given:
            self._given[setting.spec.path].append(setting)
        self._place = place
        self._host = host
        self._faults = faults
        self._file_unread = file_unread
        self._where: dict[str, str] = {}
        self.origins: dict[str, str] = {}

    def build(self, section: SectionSpec) -> SettingsSection | None:
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
        """Yield the value of a key; nothing, and a fault, if the key has no valid value.

        `above` are the values from which a default may be derived, None if one of them is invalid.
        """
        given = self._given[spec.path]
        if given:
            # Values that another source overrides are checked too.
            accepted = [value for setting in given for value in self._accepted(setting)]
            self.origins[spec.path] = given[-1].origin
            self._where[spec.path] = given[-1].where
            yield from accepted[-1:] if len(accepted) == len(given) else ()
            return
        self.origins[spec.path] = DEFAULT
        if spec.key.derived is not None:
            if above is not None:
                yield from self._derived(spec, spec.key.derived, above)
        elif not spec.required:
            yield copy(spec.default)
        elif not self._file_unread:
            # If the file is unreadable, the missing key is probably in it.
            message = f"is required: set it under [{spec.section}] in app.toml, or set {spec.env}"
            self._faults.append(Fault(spec.path, message + (f" or {spec.env}_FILE" if spec.secret else "")))

    def _accepted(self, setting: GivenSetting) -> Iterator[Any]:
        try:
            value = accept(setting.spec, setting.raw, self._place)
        except Invalid as error:
            message = refusal(error, setting.raw, showable=setting.showable)
            self._faults.append(Fault(setting.where, message))
            return
        fault = rule_fault(setting.spec, value)
        if fault is None:
            yield value
        else:
            self._faults.append(Fault(setting.where, fault))

    def _derived(self, spec: KeySpec, derived: Derived, above: Mapping[str, Any]) -> Iterator[Any]:
        value = derived.of(above, self._host)
        fault = _limits_fault(spec, value) or rule_fault(spec, value)
        if fault is None:
            yield value
        else:
            self._faults.append(
                Fault(spec.path, f"{fault}, but its default is {shown(plain(value))}: set it")
            )


def _limits_fault(spec: KeySpec, value: Any) -> str | None:
    try:
        check_limits(spec, value)
    except Invalid as error:
        return error.message
    return None


def _summary(path: Path | None, count: int) -> str:
    source = f"the configuration in {path} and the environment" if path else "the configuration"
    return f"{source} is invalid: correct the {'fault' if count == 1 else f'{count} faults'} listed."


def _is_present(section: str, file: ConfigFile | None, env: Mapping[str, str]) -> bool:
    prefix = f"{ENV_PREFIX}{section.upper()}__"
    return (file is not None and section in file.table) or any(name.startswith(prefix) for name in env)
