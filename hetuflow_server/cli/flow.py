"""`hetuflow flow list | get | graph | cancel | retry | approve | reject | skip | mark-success`."""

from __future__ import annotations

from uuid import UUID

import click

from hetuflow_core.flow_resources import FlowRunDetail
from hetuflow_core.states import FlowRunStatus
from hetuflow_server.cli.flow_view import details, drawing, table
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.listing import all_namespaces_option, limit_option, page_size, take

_comment_option = click.option("-m", "--comment", metavar="TEXT", help="What to say along with it.")
_run_argument = click.argument("run_id", metavar="ID", type=click.UUID)
_node_argument = click.argument("node", metavar="NODE")


@click.group("flow")
def flow_group() -> None:
    """List and draw runs of flows, cancel and repeat them, decide about their nodes."""


@flow_group.command("list")
@click.option(
    "--status", type=click.Choice([status.value for status in FlowRunStatus]), help="Only those that are."
)
@click.option("--job", metavar="NAME", help="Only those of this flow.")
@limit_option
@all_namespaces_option
@server_command
def list_runs(
    invocation: Invocation, *, status: str | None, job: str | None, all_namespaces: bool, limit: int
) -> None:
    """List runs of flows, newest first.

    Example: hetuflow flow list --job etl --status failed
    """
    namespace = None if all_namespaces else invocation.namespace
    with invocation.client() as client:
        runs = client.flow_runs(namespace=namespace, job=job, status=status, page_size=page_size(limit))
        found = take(invocation, runs, limit)
    invocation.show(found, human=lambda: [table(found)], brief=[run.id for run in found])


@flow_group.command("get")
@_run_argument
@server_command
def get_run(invocation: Invocation, run_id: UUID) -> None:
    """Show a run and how each of its nodes stands.

    Example: hetuflow flow get 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        run = client.flow_run(run_id)
    invocation.show(run, human=lambda: details(run), brief=[run.id])


@flow_group.command("graph")
@_run_argument
@server_command
def graph(invocation: Invocation, run_id: UUID) -> None:
    """Draw a run: a line for each node, with edges between them.

    Example: hetuflow flow graph 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        run = client.flow_run(run_id)
    _show_graph(invocation, run)


@flow_group.command("cancel")
@_run_argument
@server_command
def cancel(invocation: Invocation, run_id: UUID) -> None:
    """End a run and everything that runs in it.

    Example: hetuflow flow cancel 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        run = client.cancel_flow(run_id)
    state = run.status if run.finished_at is not None else f"{run.status} and being ended"
    invocation.show(
        run, human=lambda: [f"Run {run.id} of {run.namespace}/{run.job} is {state}."], brief=[run.id]
    )


@flow_group.command("retry")
@_run_argument
@click.option("--whole", is_flag=True, help="All of it, not only what failed and what is behind it.")
@server_command
def retry(invocation: Invocation, run_id: UUID, whole: bool) -> None:
    """Run a flow that has ended again, from what failed, as a new run.

    Example: hetuflow flow retry 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        task = client.retry_flow(run_id, whole=whole)
    invocation.show(
        task,
        human=lambda: [f"Run {task.id} of {task.namespace}/{task.job} repeats {run_id}."],
        brief=[task.id],
    )


@flow_group.command("approve")
@_run_argument
@_node_argument
@_comment_option
@server_command
def approve(invocation: Invocation, run_id: UUID, node: str, comment: str | None) -> None:
    """Let a run go on that waits for approval at this node.

    Example: hetuflow flow approve 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f load-it -m "Looks good."
    """
    with invocation.client() as client:
        _show_graph(invocation, client.approve_node(run_id, node, comment))


@flow_group.command("reject")
@_run_argument
@_node_argument
@_comment_option
@server_command
def reject(invocation: Invocation, run_id: UUID, node: str, comment: str | None) -> None:
    """Let this node fail, which waits for approval.

    Example: hetuflow flow reject 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f load-it -m "Too few rows."
    """
    with invocation.client() as client:
        _show_graph(invocation, client.reject_node(run_id, node, comment))


@flow_group.command("skip")
@_run_argument
@_node_argument
@_comment_option
@server_command
def skip(invocation: Invocation, run_id: UUID, node: str, comment: str | None) -> None:
    """Skip a node that has not ended; what runs of it is cancelled.

    Example: hetuflow flow skip 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f report
    """
    with invocation.client() as client:
        _show_graph(invocation, client.skip_node(run_id, node, comment))


@flow_group.command("mark-success")
@_run_argument
@_node_argument
@_comment_option
@server_command
def mark_success(invocation: Invocation, run_id: UUID, node: str, comment: str | None) -> None:
    """Take a node that has not ended for succeeded; what runs of it is cancelled.

    Example: hetuflow flow mark-success 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f report -m "Done by hand."
    """
    with invocation.client() as client:
        _show_graph(invocation, client.mark_node(run_id, node, comment))


def _show_graph(invocation: Invocation, run: FlowRunDetail) -> None:
    now = invocation.clock.now()
    invocation.show(run, human=lambda: drawing(run, now), brief=[run.id])
