"""The service a systemd timer starts, as what a job runs and how."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from hetuflow_core.durations import format_duration
from hetuflow_core.importers.unit_files import Unit, last, parse_span
from hetuflow_core.jobfile.run import AGENT_VARIABLES, VARIABLE

_PREFIX: Final = re.compile(r"[-@+!:|]*")
_PERCENT: Final = "%%"
_SPECIFIER: Final = re.compile(r"%[A-Za-z]")
_DEFAULT_BURST: Final = 5
_MOST_ATTEMPTS: Final = 100
_DEFAULT_PAUSE: Final = timedelta(milliseconds=100)
_YEAR: Final = timedelta(days=366)
_DAY: Final = timedelta(days=1)
# Without a meaning where every run is a process of its own, with a log of its own.
_MEANINGLESS: Final = frozenset({"RemainAfterExit", "StandardOutput", "StandardError", "SyslogIdentifier"})
_KNOWN: Final = _MEANINGLESS | frozenset(
    {
        *("Type", "ExecStart", "ExecStartPre", "ExecStartPost", "ExecCondition", "Environment", "User"),
        *("EnvironmentFile", "WorkingDirectory", "TimeoutStartSec", "TimeoutSec", "RuntimeMaxSec", "Restart"),
        *("RestartSec", "TimeoutStopSec", "MemoryMax", "MemoryLimit", "CPUQuota"),
    }
)
_PROCESS_TYPES: Final = frozenset({"simple", "exec", "oneshot", "idle"})


def job_of(service: Unit, losses: list[str]) -> dict[str, Any] | None:
    """The keys of a job; None if nothing says what to run."""
    here = service.get("Service", {})
    if not here.get("ExecStart"):
        losses.append("the service has no ExecStart: there is nothing to run.")
        return None
    losses += _specifiers(here)
    plain = {key: [value.replace(_PERCENT, "%") for value in values] for key, values in here.items()}
    service = {**service, "Service": plain}
    run = _run(service, losses)
    job: dict[str, Any] = {
        "run": run,
        **_timeout(service),
        **_retry(service, losses),
        **_resources(service, losses),
    }
    stop = parse_span(last(service, "Service", "TimeoutStopSec") or "")
    if stop is not None and stop <= _DAY:
        job["kill_grace"] = format_duration(stop)
    if (kind := last(service, "Service", "Type")) is not None and kind not in _PROCESS_TYPES:
        losses.append(f"Type={kind}: a task ends when its process does.")
    losses += [f"{key}={', '.join(values)}" for key, values in here.items() if key not in _KNOWN and values]
    return job


def _specifiers(here: Mapping[str, list[str]]) -> list[str]:
    found: dict[str, list[str]] = {}
    for key in sorted(here.keys() & (_KNOWN - _MEANINGLESS)):
        for one in sorted(set(_SPECIFIER.findall(" ".join(here[key]).replace(_PERCENT, "")))):
            found.setdefault(one, []).append(key)
    return [
        f"the specifier {one} in {', '.join(keys)}, which stands as it is: write what it means."
        for one, keys in sorted(found.items())
    ]


def _run(service: Unit, losses: list[str]) -> dict[str, Any]:
    here = service.get("Service", {})
    before = [*here.get("ExecCondition", ()), *here.get("ExecStartPre", ())]
    lines = [*before, *here["ExecStart"], *here.get("ExecStartPost", ())]
    files = here.get("EnvironmentFile", [])
    run: dict[str, Any]
    single = len(lines) == 1 and not files and _plain_words(lines[0])
    if single:
        run = {"command": _words(lines[0], losses)}
    else:
        script = [
            "set -e",
            *(_sourced(file) for file in files),
            *(_shell_line(line, losses) for line in lines),
        ]
        run = {"script": "\n".join(script) + "\n", "shell": "/bin/sh"}
    if env := _environment(here.get("Environment", []), losses):
        run["env"] = env
    if (user := last(service, "Service", "User")) is not None:
        run["user"] = user
        losses.append(f"nothing, but agents must be allowed to run tasks as {user}.")
    folder = (last(service, "Service", "WorkingDirectory") or "").removeprefix("-")
    if folder.startswith("/") and "{{" not in folder:
        run["workdir"] = folder
    elif folder:
        losses.append(f"WorkingDirectory={folder}: write the path itself.")
    return run


def _plain_words(line: str) -> bool:
    return not line.startswith("-") and "$" not in line and "{{" not in line


def _words(line: str, losses: list[str]) -> list[str]:
    prefix = _PREFIX.match(line)
    marks = prefix[0] if prefix else ""
    words = shlex.split(line[len(marks) :])
    if "@" in marks and len(words) > 1:
        losses.append(f"the name {words[1]} that the process was to have (@).")
        del words[1]
    if privileged := set(marks) & {"+", "!"}:
        losses.append(f"full privileges ({''.join(sorted(privileged))}) of {words[0]}.")
    return words


def _shell_line(line: str, losses: list[str]) -> str:
    marks = _PREFIX.match(line)
    quoted = " ".join(_shell_word(word) for word in _words(line, losses))
    return f"{quoted} || true" if marks is not None and "-" in marks[0] else quoted


def _shell_word(word: str) -> str:
    """As systemd takes it: variables are put in, and nothing else means anything."""
    if "$" not in word:
        return shlex.quote(word)
    escaped = re.sub(r'(["`\\])', r"\\\1", word).replace("$$", "\\$")
    # A variable that is a word of its own becomes as many words as it has.
    return escaped if re.fullmatch(r"\$[A-Za-z_][A-Za-z0-9_]*", word) else f'"{escaped}"'


def _sourced(file: str) -> str:
    path = shlex.quote(file.removeprefix("-"))
    read = f"set -a; . {path}; set +a"
    return f"if [ -r {path} ]; then {read}; fi" if file.startswith("-") else read


def _environment(lines: list[str], losses: list[str]) -> dict[str, str]:
    env = {}
    for line in lines:
        for assignment in shlex.split(line):
            name, equals, value = assignment.partition("=")
            if not equals or not VARIABLE.fullmatch(name) or name in AGENT_VARIABLES or "{{" in value:
                losses.append(f"Environment={assignment}")
            else:
                env[name] = value
    return env


def _timeout(service: Unit) -> dict[str, Any]:
    keys = ["RuntimeMaxSec"]
    if last(service, "Service", "Type") == "oneshot":
        keys = ["TimeoutStartSec", "TimeoutSec"]
    for key in keys:
        span = parse_span(last(service, "Service", key) or "")
        if span is not None and timedelta(0) < span <= _YEAR:
            return {"timeout": format_duration(span)}
    return {}


def _retry(service: Unit, losses: list[str]) -> dict[str, Any]:
    restart = last(service, "Service", "Restart")
    if restart in {None, "no"}:
        return {}
    if restart != "on-failure":
        losses.append(f"Restart={restart}: it is tried again when it fails; what runs always is a daemon.")
    burst = last(service, "Unit", "StartLimitBurst") or ""
    attempts = int(burst) if burst.isdigit() and int(burst) > 0 else _DEFAULT_BURST
    pause = parse_span(last(service, "Service", "RestartSec") or "") or _DEFAULT_PAUSE
    delay = format_duration(pause)
    return {
        "retry": {
            "max_attempts": min(attempts, _MOST_ATTEMPTS),
            "backoff": "fixed",
            "delay": delay,
            "jitter": False,
        }
    }


def _resources(service: Unit, losses: list[str]) -> dict[str, Any]:
    resources: dict[str, Any] = {}
    memory = last(service, "Service", "MemoryMax") or last(service, "Service", "MemoryLimit")
    if memory is not None:
        if re.fullmatch(r"[0-9]+[KMGT]?", memory):
            resources["memory"] = f"{memory}i" if memory[-1].isalpha() else memory
        elif memory != "infinity":
            losses.append(f"MemoryMax={memory}")
    quota = last(service, "Service", "CPUQuota") or ""
    if re.fullmatch(r"[0-9]+%", quota):
        resources["cpu"] = int(quota[:-1]) / 100
    return {"placement": {"resources": resources}} if resources else {}
