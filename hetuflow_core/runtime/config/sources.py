"""Sources of settings: one TOML file, the environment, and files named in the environment.

Unreadable sources and unknown keys are appended to the list `faults`, so that all faults are found. Messages
never quote the values of unknown keys, because a misspelt key may contain a password.
"""

from __future__ import annotations

import difflib
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.runtime.config.keys import ENV_PREFIX, KeySpec, SectionSpec
from hetuflow_core.runtime.config.values import raw_from_text, refusal, shown

FILE_NAME = "app.toml"
SYSTEM_PATH = Path("/etc/hetuflow/app.toml")
PATH_VARIABLE = "HETUFLOW_CONFIG"
# Larger than any configuration or secret, small enough to be harmless if the path is wrong.
_LARGEST_FILE = 1024 * 1024
_FILE_SUFFIX = "_FILE"


@dataclass(frozen=True, slots=True)
class ConfigFile:
    path: Path
    text: str
    table: Mapping[str, Any]

    def where(self, section: str, key: str | None = None) -> str:
        """Return `app.toml:12 server.port`, without the line if it is ambiguous."""
        line = _line_of(self.text, section, key)
        name = f"{section}.{key}" if key else f"[{section}]"
        return f"{self.path}:{line} {name}" if line else f"{self.path} {name}"


@dataclass(frozen=True, slots=True)
class GivenSetting:
    """An unchecked value of a key."""

    spec: KeySpec
    raw: Any
    origin: str  # for `config show`
    where: str  # for messages
    showable: bool


def find_config_file(
    config_path: Path | None, env: Mapping[str, str], cwd: Path, system_path: Path
) -> Path | None:
    if config_path is not None:
        return cwd / config_path
    if env.get(PATH_VARIABLE):
        return cwd / env[PATH_VARIABLE]
    return next((path for path in (cwd / FILE_NAME, system_path) if _may_exist(path)), None)


def _may_exist(path: Path) -> bool:
    try:
        path.stat()
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError:
        # The file exists but is not accessible: reading it reports the fault instead of ignoring the file.
        return True
    return True


def read_config_file(path: Path, faults: list[Fault]) -> ConfigFile | None:
    try:
        text = _read_text(path)
        return ConfigFile(path, text, tomllib.loads(text))
    except Invalid as error:
        faults.append(Fault(str(path), error.message))
    except tomllib.TOMLDecodeError as error:
        faults.append(Fault(str(path), f"is not valid TOML: {error}"))
    except RecursionError:
        faults.append(Fault(str(path), "is not valid TOML: nested too deeply"))
    return None


def _read_text(path: Path) -> str:
    try:
        with path.open("rb") as stream:
            content = stream.read(_LARGEST_FILE + 1)
    except FileNotFoundError:
        raise Invalid("does not exist: correct the path or create the file") from None
    except IsADirectoryError:
        raise Invalid("is a directory: name the file in it") from None
    except PermissionError:
        raise Invalid("may not be read by this user: change its owner or mode") from None
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else "not a usable path"
        raise Invalid(f"cannot be read: {reason}") from None
    if len(content) > _LARGEST_FILE:
        raise Invalid("is larger than 1 MiB: is it the right file?")
    try:
        # Some editors on Windows write a byte order mark, which TOML does not allow.
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise Invalid(f"is not UTF-8 (at byte {error.start}): save it as UTF-8") from None


def given_in_file(
    file: ConfigFile, sections: Sequence[SectionSpec], foreign: Mapping[str, str], faults: list[Fault]
) -> Iterator[GivenSetting]:
    known = {section.name: section for section in sections}
    for name, content in file.table.items():
        if name in foreign:
            continue
        if name not in known:
            faults.append(Fault(file.where(name), _unknown_section(name, content, known, foreign)))
        elif not isinstance(content, dict):
            faults.append(Fault(file.where(name), f"must be a section: write [{name}] and its keys below it"))
        else:
            yield from _given_in_section(file, known[name], content, known, faults)


def _given_in_section(
    file: ConfigFile,
    section: SectionSpec,
    content: Mapping[str, Any],
    known: Mapping[str, SectionSpec],
    faults: list[Fault],
) -> Iterator[GivenSetting]:
    specs = {spec.name: spec for spec in section.keys}
    for key, raw in content.items():
        where = file.where(section.name, key)
        if key in specs:
            spec = specs[key]
            origin = where.removesuffix(f" {spec.path}")
            yield GivenSetting(spec, raw, origin=origin, where=where, showable=not spec.secret)
        else:
            elsewhere = _sections_with(key, known)
            hint = f": it belongs to {elsewhere}" if elsewhere else did_you_mean(key, specs)
            faults.append(Fault(where, f"is not a known key{hint}"))


def _unknown_section(
    name: str, content: Any, known: Mapping[str, SectionSpec], foreign: Mapping[str, str]
) -> str:
    if isinstance(content, dict):
        return f"is not a known section{did_you_mean(name, [*known, *foreign])}"
    elsewhere = _sections_with(name, known)
    return f"is outside of any section: move it to {elsewhere or 'the section it belongs to'}"


def _sections_with(key: str, known: Mapping[str, SectionSpec]) -> str:
    names = (name for name, section in known.items() if any(spec.name == key for spec in section.keys))
    return " or ".join(f"[{name}]" for name in names)


def given_in_environment(
    env: Mapping[str, str],
    cwd: Path,
    sections: Sequence[SectionSpec],
    foreign: Mapping[str, str],
    faults: list[Fault],
) -> Iterator[GivenSetting]:
    """Yield the settings; only names with a double underscore are settings, unlike HETUFLOW_URL."""
    specs = {spec.env: spec for section in sections for spec in section.keys}
    ours = sorted(name for name in env if name.startswith(ENV_PREFIX) and "__" in name)
    for name in ours:
        if name.removeprefix(ENV_PREFIX).partition("__")[0].lower() in foreign:
            continue
        spec = specs.get(name)
        if spec is not None:
            yield from _given_by_variable(spec, name, env[name], faults, showable=not spec.secret)
            continue
        spec = specs.get(name.removesuffix(_FILE_SUFFIX)) if name.endswith(_FILE_SUFFIX) else None
        if spec is None:
            hint = did_you_mean(name, [*specs, *(f"{known}{_FILE_SUFFIX}" for known in specs)])
            faults.append(Fault(name, f"is not a known setting{hint}"))
        elif spec.env in env:
            faults.append(Fault(name, f"is set together with {spec.env}: keep one of the two"))
        else:
            yield from _given_by_named_file(spec, name, env[name], cwd, faults)


def _given_by_named_file(
    spec: KeySpec, name: str, path: str, cwd: Path, faults: list[Fault]
) -> Iterator[GivenSetting]:
    if not path:
        faults.append(Fault(name, "names no file: set it to a path or unset it"))
        return
    try:
        text = _read_text(cwd / path).rstrip("\r\n")
    except Invalid as error:
        # The variable may contain the secret instead of a path: do not quote it.
        file = "the file it names" if spec.secret else f"the file {shown(path)}"
        faults.append(Fault(name, f"{file} {error.message}"))
        return
    # Do not quote the content: the path may name a file with other secrets.
    yield from _given_by_variable(spec, name, text, faults, showable=False)


def _given_by_variable(
    spec: KeySpec, name: str, text: str, faults: list[Fault], *, showable: bool
) -> Iterator[GivenSetting]:
    try:
        raw = raw_from_text(spec, text)
    except Invalid as error:
        faults.append(Fault(name, refusal(error, text, showable=showable)))
        return
    yield GivenSetting(spec, raw, origin=name, where=name, showable=showable)


def did_you_mean(name: str, options: Iterable[str]) -> str:
    close = difflib.get_close_matches(name, list(options), n=1)
    return f": did you mean {close[0]}?" if close else ": remove it, or see the configuration reference"


def _line_of(text: str, section: str, key: str | None) -> int | None:
    """Return the line of a section or key, if exactly one line matches.

    `tomllib` has no positions, so this searches the lines; a wrong line would be worse than no line.
    """
    header, lines = "", []
    for number, line in enumerate(text.splitlines(), start=1):
        name = re.match(r"""\s*\[\s*["']?([\w.-]+)["']?\s*\]""", line)
        assigned = re.match(r"""\s*["']?([\w.-]+)["']?\s*=""", line)
        if name:
            header = name[1]
            if header == (f"{section}.{key}" if key else section):
                lines.append(number)
        elif assigned:
            path = f"{header}.{assigned[1]}" if header else assigned[1]
            if path == (f"{section}.{key}" if key else section):
                lines.append(number)
    return lines[0] if len(lines) == 1 else None
