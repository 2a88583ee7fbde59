"""The REST calls about runs of flows."""

from __future__ import annotations

from uuid import UUID

from hetuflow_core.client.calls import get, pages, segment, send
from hetuflow_core.client.exchange import Plan, Stream
from hetuflow_core.resources.flows import FlowRetry, FlowRun, FlowRunDetail, NodeDecision
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.tasks import Task


def flow_runs(
    *,
    namespace: str | None = None,
    job: str | None = None,
    status: str | None = None,
    page_size: int | None = None,
) -> Stream[FlowRun]:
    """Runs of flows, newest first; fetched page by page as they are iterated over."""
    query = {"namespace": namespace, "job": job, "status": status, "limit": page_size}
    return (yield from pages("/flow-runs", query, Page[FlowRun]))


def flow_run(run_id: UUID | str) -> Plan[FlowRunDetail]:
    """A run with its nodes."""
    return (yield from get(f"/flow-runs/{segment(run_id)}", FlowRunDetail))


def flow_tasks(run_id: UUID | str, *, node: str | None = None, page_size: int | None = None) -> Stream[Task]:
    """The tasks of a run's nodes."""
    query = {"node": node, "limit": page_size}
    return (yield from pages(f"/flow-runs/{segment(run_id)}/tasks", query, Page[Task]))


def cancel_flow(run_id: UUID | str) -> Plan[FlowRunDetail]:
    """End a run and everything in it."""
    return (yield from send("POST", f"/flow-runs/{segment(run_id)}/cancel", FlowRunDetail, repeatable=True))


def retry_flow(run_id: UUID | str, *, whole: bool = False) -> Plan[Task]:
    """Run a flow again from what failed, or as a whole; the new run has the id of the task."""
    return (yield from send("POST", f"/flow-runs/{segment(run_id)}/retry", Task, FlowRetry(whole)))


def approve_node(run_id: UUID | str, node: str, comment: str | None = None) -> Plan[FlowRunDetail]:
    """Let a run go on that waits for approval."""
    return (yield from _decide(run_id, node, "approve", comment))


def reject_node(run_id: UUID | str, node: str, comment: str | None = None) -> Plan[FlowRunDetail]:
    """Let a node fail that waits for approval."""
    return (yield from _decide(run_id, node, "reject", comment))


def skip_node(run_id: UUID | str, node: str, comment: str | None = None) -> Plan[FlowRunDetail]:
    """Skip a node that has not ended; what runs of it is cancelled."""
    return (yield from _decide(run_id, node, "skip", comment))


def mark_node(run_id: UUID | str, node: str, comment: str | None = None) -> Plan[FlowRunDetail]:
    """Take a node that has not ended for succeeded; what runs of it is cancelled."""
    return (yield from _decide(run_id, node, "mark-success", comment))


def _decide(run_id: UUID | str, node: str, verb: str, comment: str | None) -> Plan[FlowRunDetail]:
    path = f"/flow-runs/{segment(run_id)}/nodes/{segment(node)}/{verb}"
    return (yield from send("POST", path, FlowRunDetail, NodeDecision(comment)))
