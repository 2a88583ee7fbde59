"""What people do with runs of flows: look, cancel, repeat, and decide about nodes."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from enum import StrEnum
from typing import Final, Protocol
from uuid import UUID

import msgspec

from hetuflow_core import ids
from hetuflow_core.access.permissions import GLOBAL, ROLE_PERMISSIONS, Permission
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Conflict, Denied, Invalid, NotFound
from hetuflow_core.flow import layers
from hetuflow_core.jobfile import FlowNode
from hetuflow_core.resources.flows import FlowRun, FlowRunDetail, FlowRunNode
from hetuflow_core.resources.tasks import Task
from hetuflow_core.states import FLOW_NODE_TERMINAL, FlowNodeStatus, FlowRunStatus
from hetuflow_server.cluster.hints import Hints, Topic, flow_topic
from hetuflow_server.flows import listing_store, store, transitions
from hetuflow_server.flows.advance import FlowAdvance
from hetuflow_server.flows.listing_store import RunFilter
from hetuflow_server.flows.node_starts import WHOLE
from hetuflow_server.flows.store import LockedRun, NodeRow
from hetuflow_server.flows.transitions import NodeEnd
from hetuflow_server.postgres import keyset
from hetuflow_server.postgres.connection import Lane
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.postgres.keyset import Listed
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.requests.context import RequestContext

_LONGEST_COMMENT: Final = 2_000
_BATCH: Final = 200
_ROLE: Final = "role:"
_BODIES: Final = ("job", "flow", "approval", "wait_for_event", "wait_until")


class NodeAction(StrEnum):
    """What can be said about a node."""

    APPROVE = "approve"
    REJECT = "reject"
    SKIP = "skip"
    MARK_SUCCESS = "mark-success"


_ENDS: Final = {
    NodeAction.APPROVE: (FlowNodeStatus.SUCCEEDED, "approved"),
    NodeAction.REJECT: (FlowNodeStatus.FAILED, "rejected"),
    NodeAction.SKIP: (FlowNodeStatus.SKIPPED, "by_hand"),
    NodeAction.MARK_SUCCESS: (FlowNodeStatus.SUCCEEDED, "by_hand"),
}


class TasksOfRuns(Protocol):
    """The actions on tasks that actions on flow runs consist of: the task of a flow run has the run's id."""

    async def tasks_by_id(self, context: RequestContext, task_ids: Sequence[UUID]) -> list[Task]: ...

    async def cancel(self, context: RequestContext, task_id: UUID) -> Task: ...

    async def repeat(self, context: RequestContext, task_id: UUID, *, from_failed: bool) -> Task: ...


class FlowActions:
    def __init__(
        self,
        database: Database,
        hints: Hints,
        flow_advance: FlowAdvance,
        finisher: Finisher,
        tasks: TasksOfRuns,
    ) -> None:
        self._database = database
        self._hints = hints
        self._flow_advance = flow_advance
        self._finisher = finisher
        self._tasks = tasks

    async def run(self, context: RequestContext, run_id: UUID) -> FlowRunDetail:
        async with self._database.transaction(context) as connection:
            found = await listing_store.run_by_id(connection, run_id)
            if found is None or not context.sees(found.namespace):
                raise _no_run()
            shape = await self._flow_advance.definitions.of(connection, found.job_id, found.job_version)
            states = await listing_store.node_states(connection, run_id)
        drawn = layers(shape.graph)
        nodes = [
            _shown(
                run_id, shape.nodes[name].spec, states[name], drawn[name], spread=shape.nodes[name].is_spread
            )
            for name in shape.graph.order
            if name in states
        ]
        return FlowRunDetail(**msgspec.structs.asdict(found), nodes=nodes)

    async def list_runs(
        self, context: RequestContext, wanted: RunFilter, *, limit: int, cap: int
    ) -> Listed[FlowRun]:
        """Return up to `limit` runs; there may be a next page behind a short one."""
        wanted = replace(wanted, namespaces=context.reach(wanted.namespace))
        async with self._database.transaction(context, lane=Lane.INDEX_ORDER) as connection:
            walk = await listing_store.walk_to(connection, wanted)
            return await keyset.page(
                connection, walk, listing_store.runs, before=wanted.before, limit=limit, cap=cap
            )

    async def tasks(
        self, context: RequestContext, run_id: UUID, node: str | None, *, after: UUID | None, limit: int
    ) -> tuple[list[Task], int]:
        await self._seen(context, run_id)
        first, last = ids.range_of([run_id])
        start = first if after is None else UUID(int=after.int + 1)
        async with self._database.transaction(context) as connection:
            found = await listing_store.task_ids(connection, run_id, node, start, last, limit + 1)
            total = await listing_store.count_tasks(connection, run_id, node, first, last)
        return await self._tasks.tasks_by_id(context, found), total

    async def cancel(self, context: RequestContext, run_id: UUID) -> FlowRunDetail:
        """End a run by its task; cancelling twice is cancelling once."""
        await self._seen(context, run_id)
        await self._tasks.cancel(context, run_id)
        return await self.run(context, run_id)

    async def retry(self, context: RequestContext, run_id: UUID, *, whole: bool) -> Task:
        """Make a new run of one that has ended, from what failed or as a whole."""
        run = await self._seen(context, run_id)
        if run.status == FlowRunStatus.SUCCEEDED and not whole:
            raise Conflict("Nothing of this run failed: run it again as a whole.", code="flow.nothing_failed")
        return await self._tasks.repeat(context, run_id, from_failed=not whole)

    async def decide(
        self, context: RequestContext, run_id: UUID, node: str, word: NodeAction, comment: str | None
    ) -> FlowRunDetail:
        if comment is not None and (len(comment) > _LONGEST_COMMENT or "\0" in comment):
            raise Invalid(f"A comment has at most {_LONGEST_COMMENT} characters.")
        seen = await self._seen(context, run_id)
        async with self._database.transaction(context) as connection:
            run = (await store.lock_runs(connection, [run_id]))[run_id]
            shape = await self._flow_advance.definitions.of_run(connection, run)
            row = (await store.nodes(connection, run_id, [node])).get(node)
            if row is None or node not in shape.nodes:
                raise NotFound(f"The run has no node {node}.", code="flow.no_node")
            _check_right(context, seen.namespace, shape.nodes[node].spec, word)
            _check_state(run, shape.nodes[node].spec, row, word)
            status, reason = _ENDS[word]
            end = NodeEnd(node, status, reason, decided_by=context.principal.name, comment=comment)
            context.audit.note_change(
                "flow_node",
                f"{run_id}/{node}",
                seen.namespace,
                before={"status": row.status},
                after={"status": status, "reason": reason, "comment": comment},
            )
            hints = await self._end(connection, run, end)
        self._hints.give(hints, context)
        return await self.run(context, run_id)

    async def _end(self, connection: Connection, run: LockedRun, end: NodeEnd) -> set[Topic]:
        """End a node, then what runs of it, and only then begin with what follows: limits come last."""
        hints: set[Topic] = set()

        async def cancel_tasks() -> None:
            live = await listing_store.live_of_node(connection, run.id, end.node, _BATCH)
            settled = await self._finisher.cancel(connection, live, "by_hand")
            hints.update(settled.hints)
            if len(live) == _BATCH:
                await transitions.request_advance(connection, run.id, run.namespace_id)
                hints.add(flow_topic(run.id))

        _, following = await self._flow_advance.conclude(connection, run, [end], between=cancel_tasks)
        return hints | following

    async def _seen(self, context: RequestContext, run_id: UUID) -> FlowRun:
        async with self._database.transaction(context) as connection:
            found = await listing_store.run_by_id(connection, run_id)
        if found is None or not context.sees(found.namespace):
            raise _no_run()
        return found


def _check_right(context: RequestContext, namespace: str, node: FlowNode, word: NodeAction) -> None:
    approvers = node.approval.approvers if node.approval is not None else ()
    if word in {NodeAction.SKIP, NodeAction.MARK_SUCCESS} or not approvers:
        context.require(Permission.FLOWS_OPERATE, namespace)
    elif not any(_is(context, namespace, approver) for approver in approvers):
        raise Denied(
            f"{node.name} is for {', '.join(approvers)} to decide, not for {context.principal.name}.",
            code="flow.not_approver",
        )


def _is(context: RequestContext, namespace: str, approver: str) -> bool:
    """Whether somebody is meant by a name, or by a role: who may all that the role may there."""
    if not approver.startswith(_ROLE):
        return approver == context.principal.name
    role = approver.removeprefix(_ROLE)
    return role in list(Role) and ROLE_PERMISSIONS[Role(role)] - GLOBAL <= context.principal.rights.within(
        namespace
    )


def _check_state(run: LockedRun, node: FlowNode, row: NodeRow, word: NodeAction) -> None:
    if word in {NodeAction.APPROVE, NodeAction.REJECT}:
        if node.approval is None:
            raise Conflict(f"The node {node.name} needs no approval.", code="flow.no_approval")
        if row.status is FlowNodeStatus.WAITING:
            raise Conflict(f"It is not the turn of {node.name} yet.", code="flow.not_yet")
    if row.status in FLOW_NODE_TERMINAL or run.ending is not None:
        raise Conflict(f"The node {node.name} has ended already, or is ending.", code="flow.node_ended")


def _shown(
    run_id: UUID, node: FlowNode, state: dict[str, object], drawn: tuple[int, int], *, spread: bool
) -> FlowRunNode:
    does = next((body for body in _BODIES if getattr(node, body) is not None), "run")
    single = node.has_tasks and not spread and bool(state["started"])
    return FlowRunNode(
        name=node.name,
        does=does,
        needs=list(node.needs),
        trigger=node.trigger.value,
        layer=drawn[0],
        place=drawn[1],
        task_id=ids.task_of_flow_node(run_id, node.name, WHOLE) if single else None,
        approvers=list(node.approval.approvers) if node.approval is not None else [],
        **state,  # type: ignore[arg-type]  # a row, column by column
    )


def _no_run() -> NotFound:
    return NotFound("There is no such flow run.", code="flow.not_found")
