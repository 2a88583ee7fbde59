"""Build the documents of jobs and schedules from options."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, TypeVar

import click

from hetuflow_core.errors import Invalid, NotFound

F = TypeVar("F", bound=Callable[..., Any])


def timing_options(command: F) -> F:
    options = [
        click.option("--cron", metavar="EXPRESSION", help='Run at these times, such as "0 2 * * *".'),
        click.option(
            "--timezone", metavar="NAME", help="Time zone of --cron, such as Europe/Berlin; UTC if not given."
        ),
        click.option("--every", metavar="DURATION", help="Run at this interval, such as 5m."),
        click.option("--at", metavar="TIME", help="Run once, such as 2026-12-31T23:59:00+01:00."),
        click.option("--event", metavar="NAME", help="Run on this event, such as file.uploaded."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def schedule_document(name: str, timing: Mapping[str, str | None]) -> dict[str, Any] | None:
    """Return the schedule as in a job file; None if no timing option was given."""
    given = {key: timing[key] for key in ("cron", "every", "at", "event") if timing.get(key) is not None}
    if len(given) > 1:
        raise click.UsageError(f"Give only one of {_options(given)}.")
    zone = timing.get("timezone")
    if zone is not None and "cron" not in given:
        raise click.UsageError("--timezone needs --cron.")
    if not given:
        return None
    if "event" in given:
        return {"name": name, "event": {"name": given["event"]}}
    return {"name": name, **given} | ({"timezone": zone} if zone is not None else {})


def job_document(
    name: str, *, command: Sequence[str], script: str | None, schedule: dict[str, Any] | None, **settings: Any
) -> dict[str, Any]:
    """Return the job as in a job file, with only the given keys."""
    if bool(command) == (script is not None):
        raise click.UsageError("Give either a command after -- or --script FILE.")
    run = {"command": list(command)} if command else {"script": _text(script or "")}
    document: dict[str, Any] = {"kind": "job", "name": name, "run": run}
    document |= {key: value for key, value in settings.items() if value}
    if schedule is not None:
        document["schedules"] = [schedule]
    return document


def _text(file: str) -> str:
    try:
        return Path(file).read_text(encoding="utf-8")
    except FileNotFoundError:
        raise NotFound(f"There is no file {file}: check the name.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise Invalid(f"{file} cannot be read ({error}).") from None


def _options(names: Mapping[str, object]) -> str:
    return ", ".join(f"--{name}" for name in names)
