"""`hetuflow job list | get | create | edit | versions | run | next | enable | disable | delete`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import click

from hetuflow_core.resources.jobs import Job
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_server.cli.commands.schedule.next_fires import job_next
from hetuflow_server.cli.follow_task import attend
from hetuflow_server.cli.interrupts import Choice, on_interrupt_option
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.lazy_loading import load
from hetuflow_server.cli.name_suggestions import named_job
from hetuflow_server.cli.options.instants import parse_coming
from hetuflow_server.cli.options.new_job import job_document, schedule_document, timing_options
from hetuflow_server.cli.options.params import parse_labels, parse_params
from hetuflow_server.cli.options.selection import (
    all_option,
    do_to_many,
    dry_run_option,
    label_option,
    named_or_chosen,
)
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.layout import Block, Column, Kind, Sheet, Table
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take
from hetuflow_server.cli.task_exit_code import EXPLAINED


@click.group("job", commands=[job_next])
def job_group() -> None:
    """What can be run: list, show, make, change, run, pause and delete jobs; `hetuflow apply` takes files."""


@job_group.command("list")
@click.option(
    "-l", "--label", "labels", multiple=True, metavar="NAME=VALUE", help="Only with it. Repeatable."
)
@limit_option
@all_namespaces_option
@server_command
def list_jobs(invocation: Invocation, labels: tuple[str, ...], all_namespaces: bool, limit: int) -> None:
    """List the jobs of a namespace.

    Example: hetuflow job list -n team-a -l tier=gold -o json
    """
    namespace = None if all_namespaces else invocation.namespace
    wanted = parse_labels(labels)
    with invocation.client() as client:
        jobs = client.jobs(namespace=namespace, labels=wanted, page_size=page_size(limit))
        found = take(invocation, jobs, limit)
    invocation.show(found, human=lambda: [_table(found)], brief=[job.name for job in found])


@job_group.command("get")
@click.argument("name")
@server_command
def get_job(invocation: Invocation, name: str) -> None:
    """Show a job and what is in its file.

    Defaults are filled in.

    Example: hetuflow job get nightly-report -o yaml
    """
    with invocation.client() as client:
        job = named_job(invocation, client, name)
    invocation.show(job, human=lambda: _details(job), brief=[job.id])


@job_group.command("create")
@click.argument("name")
@click.argument("command", nargs=-1, type=click.UNPROCESSED, metavar="[-- COMMAND [ARG]...]")
@click.option("--script", metavar="FILE", help="A shell script to run instead of a command; it is copied.")
@timing_options
@click.option("--timeout", metavar="DURATION", help="Most time for one attempt, such as 10m.")
@click.option("--attempts", type=click.IntRange(1, 100), metavar="N", help="Try it so often if it fails.")
@click.option(
    "-p", "params", multiple=True, metavar="NAME=VALUE", help="A param with its default. Repeatable."
)
@click.option("--dry-run", is_flag=True, help="Only print the job file, to keep and to apply.")
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
    """Make a job of a command, and a schedule if a time is given.

    It is refused if there is a job of this name. `hetuflow apply` changes jobs, and says more about them.

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
    _tell(invocation, job, "is created")


@job_group.command("edit")
@click.argument("name")
@server_command
def edit_job(invocation: Invocation, name: str) -> None:
    """Change a job in your editor; what is saved is its next version.

    $VISUAL or $EDITOR says which one. If somebody else changes the job meanwhile, nothing is saved.

    Example: hetuflow job edit nightly-report
    """
    with invocation.client() as client:
        job = named_job(invocation, client, name)
        etag = client.job_etag(job.id)
        changes = load("hetuflow_server.cli.editor:edited")(f"job {name}", job.spec)
        changed = client.change_job(job.id, changes, etag=etag)
    _tell(invocation, changed, f"is changed, version {changed.version}")


@job_group.command("versions")
@click.argument("name")
@limit_option
@server_command
def list_versions(invocation: Invocation, name: str, limit: int) -> None:
    """List what a job was, newest first; -o yaml shows each whole.

    Example: hetuflow job versions nightly-report --limit 5
    """
    with invocation.client() as client:
        job = named_job(invocation, client, name)
        found = take(invocation, client.job_versions(job.id, page_size=page_size(limit)), limit)
    columns = [Column("VERSION", Kind.NUMBER), Column("CREATED", Kind.TIME), Column("BY")]
    rows = [[one.version, one.created_at, one.created_by] for one in found]
    invocation.show(found, human=lambda: [Table(columns, rows)], brief=[one.version for one in found])


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
    help="A param on top of the job's own; read as JSON where it is JSON, else as text. Repeatable.",
)
@click.option(
    "--priority", type=click.IntRange(0, 1000), metavar="0-1000", help="Instead of the job's; higher first."
)
@click.option("--wait", is_flag=True, help="Stay until the task has ended.")
@click.option("--logs", is_flag=True, help="Show what the task writes, live, and stay until it has ended.")
@click.option("--idempotency-key", metavar="TEXT", help="With the same key there is one task only.")
@click.option("--agent", metavar="NAME", help="The only agent that may take it.")
@click.option("--at", metavar="TIME", help="Not before then: a time, or how long from now (10m, 2h).")
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
            "With --logs standard output belongs to the task: leave out -o, or use --wait instead."
        )
    given = parse_params(params)
    run_at = None if at is None else parse_coming(at, invocation.clock.now(), "--at")
    with invocation.client() as client:
        job = named_job(invocation, client, name)
        task = client.run(
            job.id,
            params=given,
            priority=priority,
            run_at=run_at,
            idempotency_key=idempotency_key,
            agent=agent,
        )
        if wait or logs:
            invocation.note(f"Task {task.id} is on its way.")
            return attend(invocation, client, task.id, logs=logs, on_interrupt=on_interrupt)
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
    """Let the schedules of jobs fire again, from now on, and people run them.

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
    """Let nothing new of jobs begin.

    What has been asked for or fired goes on; `hetuflow task cancel` ends it. Daemons stop.

    Example: hetuflow job disable -l team=data --dry-run
    """
    return _switch(invocation, name, labels=labels, everything=everything, dry_run=dry_run, enabled=False)


@job_group.command("delete")
@click.argument("name")
@YES
@server_command
def delete_job(invocation: Invocation, name: str) -> None:
    """Delete a job and its schedules.

    Its tasks stay, and those that have not ended go on.

    Example: hetuflow job delete nightly-report
    """
    with invocation.client() as client:
        job = named_job(invocation, client, name)
        schedules = len(job.spec.get("schedules") or ())
        with_them = f" and its {schedules} schedule{'s' if schedules > 1 else ''}" if schedules else ""
        invocation.sure(f"Delete the job {job.namespace}/{job.name}{with_them}?")
        client.delete_job(job.id)
    invocation.tell_deleted("Job", f"{job.namespace}/{job.name}")


def _switch(
    invocation: Invocation,
    names: Sequence[str],
    *,
    labels: Sequence[str],
    everything: bool,
    dry_run: bool,
    enabled: bool,
) -> int:
    named_or_chosen(names, chosen=bool(labels), everything=everything, what="jobs")
    with invocation.client() as client:
        if not names:
            act = partial(
                client.switch_jobs,
                enabled=enabled,
                namespace=invocation.namespace,
                labels=parse_labels(labels),
            )
            verb = "enabled" if enabled else "disabled"
            return do_to_many(invocation, act, verb=verb, what="jobs", dry_run=dry_run)
        if dry_run:
            raise click.UsageError("--dry-run is for jobs that are chosen by options.")
        switch = client.enable_job if enabled else client.disable_job
        jobs = [switch(named_job(invocation, client, name).id) for name in names]
    state = "is enabled" if enabled else "is disabled"
    lines = [f"Job {job.namespace}/{job.name} {state}." for job in jobs]
    shown = jobs[0] if len(jobs) == 1 else jobs
    invocation.show(shown, human=lambda: ["\n".join(lines)], brief=[job.id for job in jobs])
    return ExitCode.OK


def _tell(invocation: Invocation, job: Job, state: str) -> None:
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
