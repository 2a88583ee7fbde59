"""`hetuflow job list | get | create | edit | versions | run | next | enable | disable | delete`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from hetuflow_core.resources.jobs import Job
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_server.cli.commands.schedule.next_fires import job_next
from hetuflow_server.cli.follow_task import wait_for_task
from hetuflow_server.cli.interrupts import Choice, on_interrupt_option
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.lazy_loading import load
from hetuflow_server.cli.name_suggestions import named_job
from hetuflow_server.cli.options.instants import parse_coming
from hetuflow_server.cli.options.new_job import job_document, schedule_document, timing_options
from hetuflow_server.cli.options.params import parse_labels, parse_params
from hetuflow_server.cli.options.selection import (
    all_option,
    dry_run_option,
    label_option,
    require_selection,
    run_bulk,
)
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.layout import Block, Column, Kind, Sheet, Table
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take
from hetuflow_server.cli.task_exit_code import EXPLAINED


@click.group("job", commands=[job_next])
def job_group() -> None:
    """List, show, create, edit, run, enable, disable and delete jobs.

    To create jobs from files, use `hetuflow apply`.
    """


@job_group.command("list")
@click.option(
    "-l",
    "--label",
    "labels",
    multiple=True,
    metavar="NAME=VALUE",
    help="Only jobs with this label. Repeatable.",
)
@limit_option
@all_namespaces_option
@server_command
def list_jobs(invocation: Invocation, labels: tuple[str, ...], all_namespaces: bool, limit: int) -> None:
    """List the jobs of a namespace.

    Example: hetuflow job list -n team-a -l tier=gold -o json
    """
    namespace = None if all_namespaces else invocation.namespace
    with invocation.client() as client:
        pages = client.jobs(namespace=namespace, labels=parse_labels(labels), page_size=page_size(limit))
        jobs = take(invocation, pages, limit)
    invocation.show(jobs, human=lambda: [_table(jobs)], brief=[job.name for job in jobs])


@job_group.command("get")
@click.argument("name")
@server_command
def get_job(invocation: Invocation, name: str) -> None:
    """Show a job and its definition, with defaults filled in.

    Example: hetuflow job get nightly-report -o yaml
    """
    with invocation.client() as client:
        job = named_job(invocation, client, name)
    invocation.show(job, human=lambda: _details(job), brief=[job.id])


@job_group.command("create")
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND [ARG]...]")
@click.option("--script", metavar="FILE", help="Run this shell script; its text is copied into the job.")
@timing_options
@click.option("--timeout", metavar="DURATION", help="Maximum duration of one attempt, such as 10m.")
@click.option(
    "--attempts",
    type=click.IntRange(1, 100),
    metavar="N",
    help="Maximum number of attempts if the task fails.",
)
@click.option(
    "-p",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Declare a parameter with a default. Repeatable.",
)
@click.option("--dry-run", is_flag=True, help="Print the job file instead of creating the job.")
@server_command
def create_job(
    invocation: Invocation,
    /,
    *,
    name: str,
    command: tuple[str, ...],
    script: str | None,
    timeout: str | None,
    attempts: int | None,
    params: tuple[str, ...],
    dry_run: bool,
    **timing: str | None,
) -> None:
    """Create a job that runs a command, optionally with a schedule.

    Creation fails if a job with this name exists. Job files offer more options, see `hetuflow apply`.

    Example: hetuflow job create backup --cron "0 2 * * *" --attempts 3 -- ./backup.sh --all
    """
    document = job_document(
        name,
        command=command,
        script=script,
        schedule=schedule_document("main", timing),
        params=parse_params(params),
        timeout=timeout,
        retry=None if attempts is None else {"max_attempts": attempts},
    )
    if invocation.given_namespace is not None:
        document = {"kind": "job", "namespace": invocation.namespace, **document}
    if dry_run:
        click.echo(load("hetuflow_server.cli.output.as_yaml:as_yaml")(document))
        return
    with invocation.client() as client:
        job = client.create_job(document)
    _show_change(invocation, job, "is created")


@job_group.command("edit")
@click.argument("name")
@server_command
def edit_job(invocation: Invocation, name: str) -> None:
    """Edit a job in your editor; saving creates the next version.

    The editor is taken from $VISUAL or $EDITOR. If the job changes in the meantime, nothing is saved.

    Example: hetuflow job edit nightly-report
    """
    with invocation.client() as client:
        job = named_job(invocation, client, name)
        etag = client.job_etag(job.id)
        changes = load("hetuflow_server.cli.editor:edit_document")(f"job {name}", job.spec)
        changed = client.change_job(job.id, changes, etag=etag)
    _show_change(invocation, changed, f"is changed, version {changed.version}")


@job_group.command("versions")
@click.argument("name")
@limit_option
@server_command
def list_versions(invocation: Invocation, name: str, limit: int) -> None:
    """List the versions of a job, newest first.

    -o yaml shows each definition.

    Example: hetuflow job versions nightly-report --limit 5
    """
    with invocation.client() as client:
        job = named_job(invocation, client, name)
        versions = take(invocation, client.job_versions(job.id, page_size=page_size(limit)), limit)
    columns = [Column("VERSION", Kind.NUMBER), Column("CREATED", Kind.TIME), Column("BY")]
    rows = [[version.version, version.created_at, version.created_by] for version in versions]
    invocation.show(
        versions, human=lambda: [Table(columns, rows)], brief=[version.version for version in versions]
    )


@job_group.command(
    "run",
    help=f"""Run a job now, as a new task.

{EXPLAINED}
Example: hetuflow job run nightly-report -p who=me -p count=3 --logs
""",
    short_help="Run a job now, as a new task.",
)
@click.argument("name")
@click.option(
    "-p",
    "params",
    multiple=True,
    metavar="NAME=VALUE",
    help="Set a parameter; a value that is not valid JSON is passed as text. Repeatable.",
)
@click.option(
    "--priority",
    type=click.IntRange(0, 1000),
    metavar="0-1000",
    help="Override the job's priority; higher runs first.",
)
@click.option("--wait", is_flag=True, help="Wait until the task has ended.")
@click.option("--logs", is_flag=True, help="Print the task's log live and wait until the task has ended.")
@click.option("--idempotency-key", metavar="TEXT", help="Calls with the same key create only one task.")
@click.option("--agent", metavar="NAME", help="Run the task on this agent only.")
@click.option("--at", metavar="TIME", help="Earliest start: a time, or a duration from now (10m, 2h).")
@on_interrupt_option
@server_command
def run_job(
    invocation: Invocation,
    *,
    name: str,
    params: tuple[str, ...],
    priority: int | None,
    wait: bool,
    logs: bool,
    idempotency_key: str | None,
    agent: str | None,
    at: str | None,
    on_interrupt: Choice,
) -> int:
    if logs and invocation.output != "table":
        raise click.UsageError(
            "--logs prints the task's log to standard output: leave out -o, or use --wait instead."
        )
    task_params = parse_params(params)
    run_at = None if at is None else parse_coming(at, invocation.clock.now(), "--at")
    with invocation.client() as client:
        job = named_job(invocation, client, name)
        task = client.run(
            job.id,
            params=task_params,
            priority=priority,
            run_at=run_at,
            idempotency_key=idempotency_key,
            agent=agent,
        )
        if wait or logs:
            invocation.note(f"Task {task.id} is created.")
            return wait_for_task(invocation, client, task.id, logs=logs, on_interrupt=on_interrupt)
    invocation.show(
        task,
        human=lambda: [f"Task {task.id} of {task.namespace}/{task.job} is {task.status}."],
        brief=[task.id],
    )
    return 0


@job_group.command("enable")
@click.argument("name", nargs=-1)
@label_option
@all_option
@dry_run_option
@YES
@server_command
def enable_job(
    invocation: Invocation,
    *,
    name: tuple[str, ...],
    labels: tuple[str, ...],
    everything: bool,
    dry_run: bool,
) -> int:
    """Enable jobs.

    Their schedules fire again from now on, and tasks can be created.

    Example: hetuflow job enable nightly-report
    """
    return _switch(invocation, name, labels=labels, everything=everything, dry_run=dry_run, enabled=True)


@job_group.command("disable")
@click.argument("name", nargs=-1)
@label_option
@all_option
@dry_run_option
@YES
@server_command
def disable_job(
    invocation: Invocation,
    *,
    name: tuple[str, ...],
    labels: tuple[str, ...],
    everything: bool,
    dry_run: bool,
) -> int:
    """Disable jobs: no new tasks start.

    Existing tasks continue; cancel them with `hetuflow task cancel`. Daemons stop.

    Example: hetuflow job disable -l team=data --dry-run
    """
    return _switch(invocation, name, labels=labels, everything=everything, dry_run=dry_run, enabled=False)


@job_group.command("delete")
@click.argument("name")
@YES
@server_command
def delete_job(invocation: Invocation, name: str) -> None:
    """Delete a job and its schedules.

    Its tasks are kept, and unfinished tasks continue.

    Example: hetuflow job delete nightly-report
    """
    with invocation.client() as client:
        job = named_job(invocation, client, name)
        schedules = len(job.spec.get("schedules") or ())
        schedules_too = f" and its {schedules} schedule{'s' if schedules > 1 else ''}" if schedules else ""
        invocation.confirm(f"Delete the job {job.namespace}/{job.name}{schedules_too}?")
        client.delete_job(job.id)
    invocation.show_deleted("Job", f"{job.namespace}/{job.name}")


def _switch(
    invocation: Invocation,
    names: Sequence[str],
    *,
    labels: Sequence[str],
    everything: bool,
    dry_run: bool,
    enabled: bool,
) -> int:
    require_selection(names, chosen=bool(labels), everything=everything, what="jobs")
    with invocation.client() as client:
        if not names:
            bulk_call = partial(
                client.switch_jobs,
                enabled=enabled,
                namespace=invocation.namespace,
                labels=parse_labels(labels),
            )
            verb = "enabled" if enabled else "disabled"
            return run_bulk(invocation, bulk_call, verb=verb, what="jobs", dry_run=dry_run)
        if dry_run:
            raise click.UsageError("--dry-run requires that jobs are selected by options, not by name.")
        switch = client.enable_job if enabled else client.disable_job
        jobs = [switch(named_job(invocation, client, name).id) for name in names]
    state = "is enabled" if enabled else "is disabled"
    lines = [f"Job {job.namespace}/{job.name} {state}." for job in jobs]
    shown = jobs[0] if len(jobs) == 1 else jobs
    invocation.show(shown, human=lambda: ["\n".join(lines)], brief=[job.id for job in jobs])
    return ExitCode.OK


def _show_change(invocation: Invocation, job: Job, state: str) -> None:
    invocation.show(job, human=lambda: [f"Job {job.namespace}/{job.name} {state}."], brief=[job.id])


def _table(jobs: Sequence[Job]) -> Table:
    columns = [
        Column("NAMESPACE", Kind.PLACE),
        Column("NAME"),
        Column("VERSION", Kind.NUMBER),
        Column("ENABLED"),
        Column("SCHEDULES", Kind.NUMBER),
        Column("UPDATED", Kind.TIME),
    ]
    rows = [
        [
            job.namespace,
            job.name,
            job.version,
            "yes" if job.enabled else "no",
            len(job.spec.get("schedules") or ()),
            job.updated_at,
        ]
        for job in jobs
    ]
    return Table(columns, rows)


def _details(job: Job) -> list[Block]:
    sheet = Sheet(
        [
            ("name", job.name),
            ("namespace", job.namespace),
            ("id", str(job.id)),
            ("enabled", "yes" if job.enabled else "no"),
            ("version", job.version),
            ("labels", ", ".join(f"{name}={value}" for name, value in job.labels.items())),
            ("owner", job.owner),
            ("created", job.created_at),
            ("updated", job.updated_at),
        ]
    )
    text: str = load("hetuflow_server.cli.output.as_yaml:as_yaml")(job.spec)
    return [sheet, text]
