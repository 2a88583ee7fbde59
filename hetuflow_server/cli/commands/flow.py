"""`hetuflow flow list | get | graph | tasks | cancel | retry | approve | reject | skip | mark-success`."""

from __future__ import annotations

from uuid import UUID

import click

from hetuflow_core.resources.flows import FlowRunDetail
from hetuflow_core.states import FlowRunStatus
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.name_suggestions import resolve_flow_run
from hetuflow_server.cli.output.flows import details, drawing, table
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take
from hetuflow_server.cli.output.tasks import node_table

_comment_option = click.option("-m", "--comment", metavar="TEXT", help="Comment to store with the decision.")
# Commands accept a flow name for its newest run only if a wrong run does no harm.
_run_argument = click.argument("run_id", metavar="ID", type=click.UUID)
_which_argument = click.argument("which", metavar="ID|FLOW")
_node_argument = click.argument("node", metavar="NODE")


@click.group("flow")
def flow_group() -> None:
    """List, show, draw, cancel and retry flow runs; approve, reject and skip nodes."""


@flow_group.command("list")
@click.option(
    "--status",
    type=click.Choice([status.value for status in FlowRunStatus]),
    help="Only runs with this status.",
)
@click.option("--job", metavar="NAME", help="Only runs of this flow.")
@limit_option
@all_namespaces_option
@server_command
def list_runs(
    invocation: Invocation, *, status: str | None, job: str | None, all_namespaces: bool, limit: int
) -> None:
    """List flow runs, newest first.

    Example: hetuflow flow list --job etl --status failed
    """
    namespace = None if all_namespaces else invocation.namespace
    with invocation.client() as client:
        runs = client.flow_runs(namespace=namespace, job=job, status=status, page_size=page_size(limit))
        listed = take(invocation, runs, limit)
    invocation.show(listed, human=lambda: [table(listed)], brief=[run.id for run in listed])


@flow_group.command("get")
@_which_argument
@server_command
def get_run(invocation: Invocation, which: str) -> None:
    """Show a flow run and the state of its nodes.

    FLOW selects the newest run of that flow.

    Example: hetuflow flow get 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        run = client.flow_run(resolve_flow_run(invocation, client, which))
    invocation.show(run, human=lambda: details(run), brief=[run.id])


@flow_group.command("graph")
@_which_argument
@server_command
def graph(invocation: Invocation, which: str) -> None:
    """Draw the graph of a flow run, one line per node.

    FLOW selects the newest run of that flow.

    Example: hetuflow flow graph etl
    """
    with invocation.client() as client:
        run = client.flow_run(resolve_flow_run(invocation, client, which))
    _show_graph(invocation, run)


@flow_group.command("tasks")
@_which_argument
@click.option("--node", metavar="NAME", help="Only tasks of this node.")
@limit_option
@server_command
def list_flow_tasks(invocation: Invocation, which: str, node: str | None, limit: int) -> None:
    """List the tasks of a flow run.

    `hetuflow task logs` shows their logs. FLOW selects the newest run of that flow.

    Example: hetuflow flow tasks etl --node clean
    """
    with invocation.client() as client:
        run_id = resolve_flow_run(invocation, client, which)
        tasks = client.flow_tasks(run_id, node=node, page_size=page_size(limit))
        listed = take(invocation, tasks, limit)
    invocation.show(listed, human=lambda: [node_table(listed)], brief=[task.id for task in listed])


@flow_group.command("cancel")
@_run_argument
@server_command
def cancel(invocation: Invocation, run_id: UUID) -> None:
    """Cancel a flow run and all its unfinished tasks.

    Example: hetuflow flow cancel 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        run = client.cancel_flow(run_id)
    state = run.status if run.finished_at is not None else f"{run.status} and being cancelled"
    invocation.show(
        run, human=lambda: [f"Run {run.id} of {run.namespace}/{run.job} is {state}."], brief=[run.id]
    )


@flow_group.command("retry")
@_run_argument
@click.option("--whole", is_flag=True, help="Run all nodes, not only failed nodes and the nodes after them.")
@server_command
def retry(invocation: Invocation, run_id: UUID, whole: bool) -> None:
    """Retry an ended flow run from its failed nodes, as a new run.

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
@_which_argument
@_node_argument
@_comment_option
@server_command
def approve(invocation: Invocation, which: str, node: str, comment: str | None) -> None:
    """Approve a node that waits for approval.

    FLOW selects the newest run of that flow.

    Example: hetuflow flow approve etl load-it -m "Counts are plausible."
    """
    with invocation.client() as client:
        run_id = resolve_flow_run(invocation, client, which)
        _show_graph(invocation, client.approve_node(run_id, node, comment))


@flow_group.command("reject")
@_which_argument
@_node_argument
@_comment_option
@server_command
def reject(invocation: Invocation, which: str, node: str, comment: str | None) -> None:
    """Reject a node that waits for approval; the node fails.

    Example: hetuflow flow reject 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f load-it -m "Too few rows."
    """
    with invocation.client() as client:
        run_id = resolve_flow_run(invocation, client, which)
        _show_graph(invocation, client.reject_node(run_id, node, comment))


@flow_group.command("skip")
@_which_argument
@_node_argument
@_comment_option
@server_command
def skip(invocation: Invocation, which: str, node: str, comment: str | None) -> None:
    """Skip an unfinished node and cancel its tasks.

    Example: hetuflow flow skip 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f report
    """
    with invocation.client() as client:
        run_id = resolve_flow_run(invocation, client, which)
        _show_graph(invocation, client.skip_node(run_id, node, comment))


@flow_group.command("mark-success")
@_which_argument
@_node_argument
@_comment_option
@server_command
def mark_success(invocation: Invocation, which: str, node: str, comment: str | None) -> None:
    """Mark an unfinished node as succeeded and cancel its tasks.

    Example: hetuflow flow mark-success 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f report -m "Done by hand."
    """
    with invocation.client() as client:
        run_id = resolve_flow_run(invocation, client, which)
        _show_graph(invocation, client.mark_node(run_id, node, comment))


def _show_graph(invocation: Invocation, run: FlowRunDetail) -> None:
    now = invocation.clock.now()
    invocation.show(run, human=lambda: drawing(run, now), brief=[run.id])
