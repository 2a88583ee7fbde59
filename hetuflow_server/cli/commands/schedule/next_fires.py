"""`hetuflow job next` and `hetuflow schedule next`: upcoming fires, with the reason of skipped ones."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any, TypeVar

import click

from hetuflow_core.resources.schedules import ComingFire
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.lazy_loading import load
from hetuflow_server.cli.output.layout import Column, Kind, Table

C = TypeVar("C", bound=Callable[..., Any])


def _bounds(command: C) -> C:
    count = click.option(
        "--count",
        type=click.IntRange(1, 1000),
        default=10,
        metavar="N",
        help="Number of fires; 10 if not given.",
    )
    after = click.option(
        "--after",
        metavar="INSTANT",
        help="Only fires after this time, such as 2026-03-28T12:00:00Z; now if not given.",
    )
    return count(after(command))


@click.command("next")
@click.argument("name")
@_bounds
@server_command
def job_next(invocation: Invocation, name: str, count: int, after: str | None) -> None:
    """Show the upcoming fires of all schedules of a job.

    Skipped fires are shown with the reason.

    Example: hetuflow job next nightly-report --count 5
    """
    start = _instant(after)
    with invocation.client() as client:
        job = client.job(invocation.namespace, name)
        _show(invocation, client.coming_fires_of_job(job.id, count=count, after=start))


@click.command("next")
@click.argument("which", metavar="[JOB/NAME]", required=False)
@click.option("--cron", metavar="EXPRESSION", help="Try a cron expression; no server is needed.")
@click.option("--every", metavar="DURATION", help="Try an interval; no server is needed.")
@click.option("--timezone", metavar="NAME", help="Time zone of --cron; UTC if not given.")
@click.option(
    "--gap",
    type=click.Choice(["shift", "skip"]),
    help="How --cron treats times that daylight saving time skips.",
)
@click.option(
    "--fold",
    type=click.Choice(["first", "last", "both"]),
    help="How --cron treats times that daylight saving time repeats.",
)
@_bounds
@server_command
def schedule_next(
    invocation: Invocation,
    *,
    which: str | None,
    cron: str | None,
    every: str | None,
    timezone: str | None,
    gap: str | None,
    fold: str | None,
    count: int,
    after: str | None,
) -> None:
    """Show the upcoming fires of a schedule, or of an expression.

    Skipped fires are shown with the reason.

    Example: hetuflow schedule next --cron "0 2 * * *" --timezone Europe/Berlin
    """
    start = _instant(after)
    if which is not None:
        if any(given is not None for given in (cron, every, timezone, gap, fold)):
            raise click.UsageError("Give a schedule, or --cron or --every, not both.")
        job_name, slash, name = which.partition("/")
        if not slash:
            raise click.UsageError("Give the schedule as JOB/NAME, such as nightly-report/nightly.")
        with invocation.client() as client:
            schedule = client.schedule(invocation.namespace, job_name, name)
            fires = client.coming_fires(schedule.id, count=count, after=start)
        if schedule.kind == "daemon":
            meaning: str = load("hetuflow_server.cli.schedule_trial:daemon_text")(schedule.spec)
            invocation.show([], human=lambda: [f"{which} has no fire times: it {meaning}."], brief=[])
            return
        if schedule.kind == "event":
            when: str = load("hetuflow_server.cli.schedule_trial:event_text")(schedule.spec)
            invocation.show([], human=lambda: [f"{which} has no fire times: it fires {when}."], brief=[])
            return
        _show(invocation, fires)
        return
    if cron is None and every is None:
        raise click.UsageError("Give a schedule as JOB/NAME, or --cron or --every.")
    document = {"cron": cron, "every": every, "timezone": timezone, "dst": _dst(gap, fold)}
    trial: list[ComingFire] = load("hetuflow_server.cli.schedule_trial:trial_fires")(
        document, start or invocation.clock.now(), count
    )
    _show(invocation, trial)


def _dst(gap: str | None, fold: str | None) -> dict[str, str] | None:
    return {key: value for key, value in (("gap", gap), ("fold", fold)) if value is not None} or None


def _instant(text: str | None) -> datetime | None:
    if text is None:
        return None
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise click.BadParameter(
            f"{text!r} is not a time with a zone: write one such as 2026-03-28T12:00:00Z."
        )
    return at


def _show(invocation: Invocation, fires: Sequence[ComingFire]) -> None:
    invocation.show(
        list(fires),
        human=lambda: [_table(fires)],
        brief=[_utc(fire.fire_at) for fire in fires if fire.skipped is None],
    )


def _table(fires: Sequence[ComingFire]) -> Table:
    several = len({fire.schedule for fire in fires}) > 1
    columns = [Column("SCHEDULE")] if several else []
    columns += [Column("LOCAL", Kind.ID), Column("UTC", Kind.ID), Column("SKIPPED")]
    rows = [
        [*([fire.schedule] if several else []), fire.local, _utc(fire.fire_at), _why(fire)] for fire in fires
    ]
    return Table(columns, rows)


def _why(fire: ComingFire) -> str:
    if fire.skipped is None:
        return ""
    more = f" ({fire.times} fires, until {_utc(fire.last_fire_at)})" if fire.times > 1 else ""
    return f"{fire.skipped}{more}"


def _utc(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")
