"""`/flow-runs`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from litestar import Router, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.errors import Invalid
from hetuflow_core.resources.flows import FlowRetry, FlowRun, FlowRunDetail, NodeDecision
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.tasks import Task
from hetuflow_core.states import FlowRunStatus
from hetuflow_server.flows.actions import FlowActions, NodeAction
from hetuflow_server.flows.listing_store import RunFilter
from hetuflow_server.http.authorization import needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.requests.context import RequestContext

_STATE_PROBLEMS = problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT)
Actions = NamedDependency[FlowActions]


@get("/flow-runs", operation_id="list_flow_runs", opt=needs(Permission.FLOWS_READ), responses=problems())
async def list_flow_runs(
    context: NamedDependency[RequestContext],
    flow_actions: Actions,
    namespace: Annotated[str | None, QueryParameter()] = None,
    job: Annotated[str | None, QueryParameter(description="Name of the flow.")] = None,
    status: Annotated[str | None, QueryParameter()] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[FlowRun]:
    """List runs of flows, newest first. A page may be short and have a next one."""
    if status is not None and status not in list(FlowRunStatus):
        raise Invalid(f"There is no such status of a run: use one of {', '.join(FlowRunStatus)}.")
    wanted = RunFilter(namespace=namespace, job=job, status=status, before=decode_cursor(cursor, UUID))
    page = await flow_actions.list_runs(context, wanted, limit=limit, cap=TOTAL_CAP)
    more = None if page.position is None else encode_cursor(page.position)
    return Page(page.items, more, page.total.count, page.total.capped)


@get(
    "/flow-runs/{run_id:uuid}",
    operation_id="get_flow_run",
    opt=needs(Permission.FLOWS_READ),
    responses=problems(HTTPStatus.NOT_FOUND),
)
async def get_flow_run(
    run_id: FromPath[UUID], context: NamedDependency[RequestContext], flow_actions: Actions
) -> FlowRunDetail:
    """A run with its nodes: how each stands, and where it stands in a drawing of the graph."""
    return await flow_actions.run(context, run_id)


@get(
    "/flow-runs/{run_id:uuid}/tasks",
    operation_id="list_flow_tasks",
    opt=needs(Permission.FLOWS_READ),
    responses=problems(HTTPStatus.NOT_FOUND),
)
async def list_flow_tasks(
    run_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    flow_actions: Actions,
    node: Annotated[str | None, QueryParameter(description="Only those of this node.")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[Task]:
    """List the tasks of a run's nodes."""
    after = decode_cursor(cursor, UUID)
    tasks, total = await flow_actions.tasks(context, run_id, node, after=after, limit=limit)
    more = encode_cursor(tasks[limit - 1].id) if len(tasks) > limit else None
    return Page(tasks[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@post(
    "/flow-runs/{run_id:uuid}/cancel",
    status_code=200,
    operation_id="cancel_flow_run",
    opt=needs(Permission.FLOWS_OPERATE),
    responses=_STATE_PROBLEMS,
)
async def cancel_flow_run(
    run_id: FromPath[UUID], context: NamedDependency[RequestContext], flow_actions: Actions
) -> FlowRunDetail:
    """End a run. What waits ends at once; what runs ends when its agents have killed it."""
    return await flow_actions.cancel(context, run_id)


@post(
    "/flow-runs/{run_id:uuid}/retry",
    operation_id="retry_flow_run",
    opt=needs(Permission.FLOWS_OPERATE),
    responses=_STATE_PROBLEMS,
)
async def retry_flow_run(
    run_id: FromPath[UUID],
    data: JSONBody[FlowRetry],
    context: NamedDependency[RequestContext],
    flow_actions: Actions,
) -> Task:
    """Run a flow that has ended again, from what failed or as a whole, as a new run.

    The new run has the id of the task in the answer.
    """
    return await flow_actions.retry(context, run_id, whole=data.whole)


@post(
    "/flow-runs/{run_id:uuid}/nodes/{node:str}/approve",
    status_code=200,
    operation_id="approve_flow_node",
    opt=needs(Permission.FLOWS_READ),
    responses=_STATE_PROBLEMS,
)
async def approve_flow_node(
    run_id: FromPath[UUID],
    node: FromPath[str],
    data: JSONBody[NodeDecision],
    context: NamedDependency[RequestContext],
    flow_actions: Actions,
) -> FlowRunDetail:
    """Let a run go on that waits for approval at this node; who may, the node says."""
    return await flow_actions.decide(context, run_id, node, NodeAction.APPROVE, data.comment)


@post(
    "/flow-runs/{run_id:uuid}/nodes/{node:str}/reject",
    status_code=200,
    operation_id="reject_flow_node",
    opt=needs(Permission.FLOWS_READ),
    responses=_STATE_PROBLEMS,
)
async def reject_flow_node(
    run_id: FromPath[UUID],
    node: FromPath[str],
    data: JSONBody[NodeDecision],
    context: NamedDependency[RequestContext],
    flow_actions: Actions,
) -> FlowRunDetail:
    """Let a node fail that waits for approval; who may, the node says."""
    return await flow_actions.decide(context, run_id, node, NodeAction.REJECT, data.comment)


@post(
    "/flow-runs/{run_id:uuid}/nodes/{node:str}/skip",
    status_code=200,
    operation_id="skip_flow_node",
    opt=needs(Permission.FLOWS_OPERATE),
    responses=_STATE_PROBLEMS,
)
async def skip_flow_node(
    run_id: FromPath[UUID],
    node: FromPath[str],
    data: JSONBody[NodeDecision],
    context: NamedDependency[RequestContext],
    flow_actions: Actions,
) -> FlowRunDetail:
    """Skip a node that has not ended; what runs of it is cancelled."""
    return await flow_actions.decide(context, run_id, node, NodeAction.SKIP, data.comment)


@post(
    "/flow-runs/{run_id:uuid}/nodes/{node:str}/mark-success",
    status_code=200,
    operation_id="mark_flow_node",
    opt=needs(Permission.FLOWS_OPERATE),
    responses=_STATE_PROBLEMS,
)
async def mark_flow_node(
    run_id: FromPath[UUID],
    node: FromPath[str],
    data: JSONBody[NodeDecision],
    context: NamedDependency[RequestContext],
    flow_actions: Actions,
) -> FlowRunDetail:
    """Take a node that has not ended for succeeded; what runs of it is cancelled."""
    return await flow_actions.decide(context, run_id, node, NodeAction.MARK_SUCCESS, data.comment)


flow_runs_router = Router(
    "/api/v1",
    route_handlers=[
        list_flow_runs,
        get_flow_run,
        list_flow_tasks,
        cancel_flow_run,
        retry_flow_run,
        approve_flow_node,
        reject_flow_node,
        skip_flow_node,
        mark_flow_node,
    ],
    tags=["flows"],
)
