"""Crontabs as jobs: users' own, and the system's with a user in every line."""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import Any, Final

from hetuflow_core.errors import Invalid
from hetuflow_core.importers.result import Imported, Names
from hetuflow_core.jobfile.run import AGENT_VARIABLES
from hetuflow_core.schedule import parse_cron
from hetuflow_core.schedule.cron_syntax import MACROS

_VARIABLE: Final = re.compile(r"""(?P<q>["']?)(?P<name>[A-Za-z_][A-Za-z0-9_]*)(?P=q)\s*=\s*(?P<value>.*)""")
_FIELDS: Final = 5
_PERCENT: Final = re.compile(r"(?<!\\)%")
_SHELL: Final = "/bin/sh"
_INPUT: Final = "HETUFLOW_INPUT"
_CHANGE_FOLDER: Final = re.compile(r"^\s*cd\s+\S+\s*(&&|;)\s*")
_REBOOT: Final = "@reboot"


@dataclass(slots=True)
class _Surroundings:
    """What lines above a job say about it."""

    timezone: str
    env: dict[str, str] = field(default_factory=dict)
    mail: str | None = None
    shell: str = _SHELL
    comments: list[str] = field(default_factory=list)
    losses: list[str] = field(default_factory=list)


def import_crontab(
    text: str, source: str, *, system: bool, timezone: str, names: Names | None = None
) -> list[Imported]:
    """Every line that is a job; `system` crontabs have a user before the command.

    `timezone` is that of the host the crontab is from, which `CRON_TZ` overrides.
    """
    names = names or Names()
    around = _Surroundings(timezone)
    found: list[Imported] = []
    for number, written in enumerate(text.splitlines(), start=1):
        line, place = written.strip(), f"{source}:{number}"
        if not line:
            around.comments.clear()
        elif line.startswith("#"):
            around.comments.append(line.lstrip("# ").strip())
        elif (match := _VARIABLE.fullmatch(line)) is not None:
            _set(around, match["name"], _unquoted(match["value"].strip()))
        else:
            found.append(_job(line, place, around, system=system, names=names))
            around.comments.clear()
    return found


def _set(around: _Surroundings, name: str, value: str) -> None:
    match name:
        case "SHELL":
            around.shell = value
        case "CRON_TZ":
            around.timezone = value
        case "MAILTO":
            around.mail = value
        case "LOGNAME" | "USER":
            pass  # the user it runs as
        case _ if name in AGENT_VARIABLES:
            around.losses.append(f"the variable {name}, which agents set themselves.")
        case _:
            around.env[name] = value


def _job(line: str, place: str, around: _Surroundings, *, system: bool, names: Names) -> Imported:
    comments = tuple(comment for comment in around.comments if comment)
    losses = list(around.losses)
    when, user, command = _parts(line.lstrip("-"), system=system)
    if not command:
        return Imported(None, place, comments, (f'"{line[:80]}" is no job: it has too few fields.',))
    document: dict[str, Any] = {
        "kind": "job",
        "name": names.take(_program(command)),
        "run": _run(command, user, around, losses),
    }
    if when == _REBOOT:
        losses.append("@reboot: nothing fires when a host starts; run it by hand, or make it a daemon.")
    else:
        schedule = _schedule(when, around.timezone, losses)
        if schedule is None:
            return Imported(None, place, comments, tuple(losses))
        document["schedules"] = [schedule]
    if around.mail:
        losses.append(f"mail to {around.mail}: logs are kept by the server; a webhook tells of failures.")
    return Imported(document, place, comments, tuple(losses))


def _parts(line: str, *, system: bool) -> tuple[str, str | None, str]:
    """When, as whom, and what."""
    count = 1 if line.startswith("@") else _FIELDS
    words = line.split(None, count + system)
    if len(words) <= count + system:
        return "", None, ""
    return " ".join(words[:count]), words[count] if system else None, words[-1]


def _schedule(when: str, timezone: str, losses: list[str]) -> dict[str, Any] | None:
    cron = MACROS.get(when.lower(), when)
    try:
        parse_cron(cron)
    except Invalid as error:
        losses.append(f'"{when}": {error.message}')
        return None
    # Cron lets go what it missed, and starts a job whether or not the last run has ended.
    return {"name": "cron", "cron": cron, "timezone": timezone, "misfire": "skip"}


def _run(command: str, user: str | None, around: _Surroundings, losses: list[str]) -> dict[str, Any]:
    script, *lines = [part.replace("\\%", "%") for part in _PERCENT.split(command)]
    if lines:
        text = "\n".join(lines)
        script = f"{{ {script.strip()}\n}} <<'{_INPUT}'\n{text}\n{_INPUT}\n"
    run: dict[str, Any] = {"script": script.strip() if not lines else script, "shell": around.shell}
    if "{{" in "".join(around.env.values()):
        losses.append("variables with {{, which would be templates.")
    env = {name: value for name, value in around.env.items() if "{{" not in value}
    if env:
        run["env"] = env
    if user is not None:
        run["user"] = user
        losses.append(f"nothing, but agents must be allowed to run tasks as {user}.")
    return run


def _program(command: str) -> str:
    """A name for a command: that of the first program which is not just a way to start another."""
    behind = _CHANGE_FOLDER.sub("", _PERCENT.split(command)[0])
    words = [word for word in re.split(r"[\s;&|]+", behind) if word]
    for word in words:
        name = word.strip("\"'(){}").rpartition("/")[2]
        starts = name in {
            "cd",
            "test",
            "[",
            "sudo",
            "nice",
            "ionice",
            "flock",
            "env",
            "exec",
            "root",
            "bash",
            "sh",
        }
        if name and not starts and not re.match(r"[-$>]|\w+=", name) and "/" not in name:
            stem = re.sub(r"\.(sh|py|pl|rb)$", "", name)
            if re.search(r"[A-Za-z]", stem):
                return stem
    return "job"


def _unquoted(value: str) -> str:
    if len(value) > 1 and value[0] == value[-1] and value[0] in "\"'":
        return value[1:-1]
    return value
