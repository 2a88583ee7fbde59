"""`hetuflow daemon list | get | stop | start | scale | restart | history`."""

from __future__ import annotations

from collections.abc import Sequence

import click

from hetuflow_core.client import Hetuflow
from hetuflow_core.resources.daemons import Daemon, DaemonDetail, DaemonRun, DaemonSlot
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.output.layout import Block, Cell, Column, Kind, Sheet, Table
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take

_which = click.argument("which", metavar="JOB[/NAME]")


@click.group("daemon")
def daemon_group() -> None:
    """List, show, stop, start, scale and restart daemons.

    Daemons are schedules in job files, see `hetuflow apply`. If a job has one daemon, JOB alone names it.
    """


@daemon_group.command("list")
@click.option("--job", metavar="NAME", help="Only daemons of this job.")
@limit_option
@all_namespaces_option
@server_command
def list_daemons(invocation: Invocation, *, job: str | None, all_namespaces: bool, limit: int) -> None:
    """List the daemons of a namespace.

    Example: hetuflow daemon list
    """
    namespace = None if all_namespaces else invocation.namespace
    with invocation.client() as client:
        daemons = take(
            invocation, client.daemons(namespace=namespace, job=job, page_size=page_size(limit)), limit
        )
    invocation.show(
        daemons, human=lambda: [_table(daemons)], brief=[f"{daemon.job}/{daemon.name}" for daemon in daemons]
    )


@daemon_group.command("get")
@_which
@server_command
def get_daemon(invocation: Invocation, which: str) -> None:
    """Show a daemon with its slots.

    Example: hetuflow daemon get web/up
    """
    with invocation.client() as client:
        daemon = _find(invocation, client, which)
    _show(invocation, daemon)


@daemon_group.command("stop")
@_which
@server_command
def stop_daemon(invocation: Invocation, which: str) -> None:
    """Stop a daemon: end its instances and start no new ones.

    This disables its schedule. Processes get TERM and, after the job's kill_grace, KILL.

    Example: hetuflow daemon stop web/up
    """
    with invocation.client() as client:
        daemon = client.stop_daemon(_find(invocation, client, which).id)
    _show_change(invocation, daemon, f"is {daemon.state}")


@daemon_group.command("start")
@_which
@server_command
def start_daemon(invocation: Invocation, which: str) -> None:
    """Start a stopped daemon.

    Example: hetuflow daemon start web/up
    """
    with invocation.client() as client:
        daemon = client.start_daemon(_find(invocation, client, which).id)
    _show_change(invocation, daemon, f"is started, with {_instances(daemon.wanted)}")


@daemon_group.command("scale")
@_which
@click.argument("replicas", type=click.IntRange(min=0))
@server_command
def scale_daemon(invocation: Invocation, which: str, replicas: int) -> None:
    """Change the number of instances of a daemon.

    Scaling down ends the highest slots first. Applying the job file sets the number from the file again.

    Example: hetuflow daemon scale web/up 5
    """
    with invocation.client() as client:
        daemon = client.scale_daemon(_find(invocation, client, which).id, replicas)
    _show_change(invocation, daemon, f"has {_instances(replicas)} now")


@daemon_group.command("restart")
@_which
@click.option("--slot", type=click.IntRange(min=0), metavar="N", help="Only this slot.")
@server_command
def restart_daemon(invocation: Invocation, which: str, slot: int | None) -> None:
    """Restart a daemon's instances, at most max_unavailable at a time.

    Example: hetuflow daemon restart web/up
    """
    with invocation.client() as client:
        daemon = client.restart_daemon(_find(invocation, client, which).id, slot)
    _show_change(invocation, daemon, "is restarted" if slot is None else f"is restarted in slot {slot}")


@daemon_group.command("history")
@_which
@click.option("--slot", type=click.IntRange(min=0), metavar="N", help="Only this slot.")
@limit_option
@server_command
def daemon_history(invocation: Invocation, which: str, slot: int | None, limit: int) -> None:
    """List the current and past instances of a daemon, newest first.

    Example: hetuflow daemon history web/up --slot 0
    """
    with invocation.client() as client:
        daemon = _find(invocation, client, which)
        runs = take(
            invocation, client.daemon_history(daemon.id, slot=slot, page_size=page_size(limit)), limit
        )
    invocation.show(runs, human=lambda: [_runs(runs)], brief=[str(run.task_id) for run in runs])


def _find(invocation: Invocation, client: Hetuflow, which: str) -> DaemonDetail:
    job, _, name = which.partition("/")
    return client.daemon(invocation.namespace, job, name or None)


def _show_change(invocation: Invocation, daemon: DaemonDetail, what: str) -> None:
    invocation.show(
        daemon,
        human=lambda: [f"The daemon {daemon.job}/{daemon.name} {what}."],
        brief=[f"{daemon.job}/{daemon.name}"],
    )


def _instances(number: int) -> str:
    return "1 instance" if number == 1 else f"{number} instances"


def _show(invocation: Invocation, daemon: DaemonDetail) -> None:
    invocation.show(daemon, human=lambda: _details(daemon), brief=[daemon.id])


def _table(daemons: Sequence[Daemon]) -> Table:
    columns = [
        Column("NAMESPACE", Kind.PLACE),
        Column("JOB"),
        Column("NAME"),
        Column("STATE", Kind.STATUS),
        Column("READY", Kind.NUMBER),
        Column("UPDATED", Kind.NUMBER),
        Column("RESTARTS", Kind.NUMBER),
    ]
    rows: list[list[Cell]] = [
        [
            daemon.namespace,
            daemon.job,
            daemon.name,
            daemon.state,
            f"{daemon.ready}/{daemon.wanted}",
            daemon.updated,
            daemon.restarts,
        ]
        for daemon in daemons
    ]
    return Table(columns, rows)


def _details(daemon: DaemonDetail) -> list[Block]:
    sheet = Sheet(
        [
            ("daemon", f"{daemon.job}/{daemon.name}"),
            ("namespace", daemon.namespace),
            ("id", str(daemon.id)),
            ("state", daemon.state),
            ("ready", f"{daemon.ready} of {daemon.wanted}"),
            ("job version", daemon.job_version),
            ("restarts", daemon.restarts),
        ]
    )
    return [sheet, _slots(daemon.slots)]


def _slots(slots: Sequence[DaemonSlot]) -> Table:
    columns = [
        Column("SLOT", Kind.NUMBER),
        Column("STATE", Kind.STATUS),
        Column("AGENT"),
        Column("SINCE", Kind.TIME),
        Column("VERSION", Kind.NUMBER),
        Column("RESTARTS", Kind.NUMBER),
        Column("TASK", Kind.ID),
        Column("LAST END"),
    ]
    rows: list[list[Cell]] = [
        [
            slot.slot,
            slot.state,
            slot.agent,
            slot.started_at or slot.due_at,
            slot.job_version,
            slot.restarts,
            str(slot.task_id) if slot.task_id else None,
            _end(slot.last_status, slot.last_reason, slot.last_exit_code),
        ]
        for slot in slots
    ]
    return Table(columns, rows)


def _runs(runs: Sequence[DaemonRun]) -> Table:
    columns = [
        Column("TASK", Kind.ID),
        Column("SLOT", Kind.NUMBER),
        Column("START", Kind.NUMBER),
        Column("VERSION", Kind.NUMBER),
        Column("AGENT"),
        Column("STARTED", Kind.TIME),
        Column("ENDED", Kind.TIME),
        Column("STATUS", Kind.STATUS),
        Column("WHY"),
    ]
    rows: list[list[Cell]] = [
        [
            str(run.task_id),
            run.slot,
            run.start,
            run.job_version,
            run.agent,
            run.started_at,
            run.finished_at,
            run.status,
            _why(run.reason, run.exit_code),
        ]
        for run in runs
    ]
    return Table(columns, rows)


def _end(status: str | None, reason: str | None, exit_code: int | None) -> str | None:
    if status is None:
        return None
    why = _why(reason, exit_code)
    return f"{status}: {why}" if why else status


def _why(reason: str | None, exit_code: int | None) -> str | None:
    code = f"exit code {exit_code}" if exit_code else None
    return ", ".join(part for part in (reason, code) if part) or None
