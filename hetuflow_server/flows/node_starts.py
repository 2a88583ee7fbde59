"""A node starts: it becomes tasks, one or one for each of its items, or begins to wait."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Final
from uuid import UUID

import msgspec

from hetuflow_core import ids
from hetuflow_core.durations import parse_duration
from hetuflow_core.errors import Invalid
from hetuflow_core.flow import ItemCounts, may_start, outcome
from hetuflow_core.jobfile import FlowNode
from hetuflow_core.jobfile.flow_nodes import MOST_ITEMS
from hetuflow_core.states import FlowNodeStatus, HeldReason
from hetuflow_core.templates.rendering import render, render_value
from hetuflow_server.cluster.hints import Topic, backlog_topic, flow_topic, namespace_topic
from hetuflow_server.flows import fleets, store
from hetuflow_server.flows.definitions import FlowDefinition, NodeDefinition
from hetuflow_server.flows.node_values import Facts, facts_of, kept
from hetuflow_server.flows.store import LockedRun, NodeRow
from hetuflow_server.flows.transitions import ItemCount, NodeEnd, NodeStart
from hetuflow_server.jobs import store as job_store
from hetuflow_server.jobs.versions import JobVersion, JobVersions
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import create_transitions
from hetuflow_server.queue.rows import NewInstance, NewTask

# So many tasks are inserted in one transaction; whoever has more goes on in the next.
BATCH: Final = 500
# Flows within flows.
DEEPEST: Final = 10
# The place of the only task of a node that is not spread.
WHOLE: Final = -1

APPROVAL, UNTIL, EVENT = "approval", "until", "event"


@dataclass(slots=True)
class StartedNodes:
    starts: list[NodeStart] = field(default_factory=list)
    # What is over as soon as it began.
    ends: list[NodeEnd] = field(default_factory=list)
    hints: set[Topic] = field(default_factory=set)
    # Nodes with more items to start than fit into one transaction.
    unfinished: bool = False


@dataclass(frozen=True, slots=True)
class _Item:
    place: int
    value: Any = None
    agent: UUID | None = None


@dataclass(slots=True)
class _Made:
    tasks: list[NewTask] = field(default_factory=list)
    instances: list[NewInstance] = field(default_factory=list)
    failed: int = 0
    message: str | None = None


class NodeStarts:
    def __init__(self, versions: JobVersions) -> None:
        self._versions = versions

    async def start(
        self, connection: Connection, run: LockedRun, shape: FlowDefinition, names: Sequence[str]
    ) -> StartedNodes:
        """Begin with nodes whose turn it is; the caller writes down that they have started."""
        begun = StartedNodes()
        if not names:
            return begun
        nodes = [shape.nodes[name] for name in names]
        facts = await facts_of(
            connection, run, shape, {path for node in nodes for path in node.task_paths | node.other_paths}
        )
        now = await database_time(connection)
        for node in nodes:
            try:
                if node.spec.has_tasks:
                    await self._start_tasks(connection, run, shape, node, facts, now, begun)
                else:
                    _wait(run, shape, node.spec, facts, now, begun)
            except Invalid as error:
                begun.ends.append(_broken(node.spec.name, error))
        return begun

    async def more(
        self, connection: Connection, run: LockedRun, shape: FlowDefinition, row: NodeRow
    ) -> tuple[ItemCount | None, set[Topic]]:
        """Start as many more items of a running node as may run, up to a batch."""
        node = shape.nodes[row.node]
        count = min(BATCH, may_start(node.spread(row.total), row.counts))
        if not count:
            return None, set()
        first = row.counts.started - row.reused
        found = await store.items(connection, run.id, row.node, first=first, count=count)
        facts = await facts_of(connection, run, shape, node.task_paths)
        now = await database_time(connection)
        items = [_item(node, place, value) for place, value in found]
        version = await self._version(connection, run, node)
        made = self._make(run, shape, node, version, items, facts, now, total=row.total)
        await create_transitions.create(connection, made.tasks, made.instances)
        counted = ItemCount(row.node, started=len(items), failed=made.failed, message=made.message)
        return counted, _arrivals(made.instances)

    async def _start_tasks(
        self,
        connection: Connection,
        run: LockedRun,
        shape: FlowDefinition,
        node: NodeDefinition,
        facts: Facts,
        now: datetime,
        begun: StartedNodes,
    ) -> None:
        version = await self._version(connection, run, node)
        items, reused = await self._items(connection, run, shape, node, version, facts)
        total = len(items) + reused
        if not total:
            output = "[]" if node.is_spread else None
            begun.ends.append(
                NodeEnd(node.spec.name, FlowNodeStatus.SUCCEEDED, reason="empty", output=output)
            )
            return
        spread, before = node.spread(total), ItemCounts(started=reused, succeeded=reused)
        count = min(BATCH, may_start(spread, before))
        made = self._make(run, shape, node, version, items[:count], facts, now, total=total)
        await create_transitions.create(connection, made.tasks, made.instances)
        counts = ItemCounts(started=reused + count, succeeded=reused, failed=made.failed)
        begun.starts.append(
            NodeStart(
                node.spec.name,
                total=total,
                started=counts.started,
                succeeded=counts.succeeded,
                failed=counts.failed,
                message=made.message,
                items=_json([[item.place, _stored(item)] for item in items]) if node.is_spread else None,
                reused=reused,
            )
        )
        begun.hints |= _arrivals(made.instances)
        begun.unfinished |= may_start(spread, counts) > 0
        if (status := outcome(spread, counts)) is not None:
            begun.ends.append(NodeEnd(node.spec.name, status, reason="template_error", message=made.message))

    async def _version(self, connection: Connection, run: LockedRun, node: NodeDefinition) -> JobVersion:
        """Return what the tasks of a node are versions of: a job as it is now, or the node's own work."""
        spec = node.spec
        if spec.called is None:
            return await self._versions.get(connection, run.job_id, run.job_version, spec.name)
        row = await job_store.job_named(connection, run.namespace_id, spec.called)
        if row is None:
            raise Invalid(f"There is no job {spec.called} any more.", code="job_missing")
        if not row.enabled:
            raise Invalid(f"The job {spec.called} is disabled.", code="job_disabled")
        version = self._versions.of(row)
        if version.is_flow and (run.depth >= DEEPEST or node.spec.fleet is not None):
            raise Invalid(f"{spec.called} is a flow, which cannot be run here.", code="flow_misplaced")
        if spec.flow is not None and not version.is_flow:
            raise Invalid(f"{spec.called} is no flow any more.", code="job_no_flow")
        return version

    async def _items(
        self,
        connection: Connection,
        run: LockedRun,
        shape: FlowDefinition,
        node: NodeDefinition,
        version: JobVersion,
        facts: Facts,
    ) -> tuple[list[_Item], int]:
        """Return what is to be run, and how many more an earlier run has done."""
        if not node.is_spread:
            return [_Item(WHOLE)], 0
        if run.retry_of is not None and (left := await _left_over(connection, run.retry_of, node)):
            return left
        if node.spec.map is not None:
            values = render_value(node.spec.map.over, _context(run, shape, facts))
            if not isinstance(values, list):
                raise Invalid("What the node is mapped over is no list.", code="template_error")
            if len(values) > MOST_ITEMS:
                raise Invalid(f"A map has at most {MOST_ITEMS} items, not {len(values)}.", code="too_many")
            return [_Item(place, value) for place, value in enumerate(values)], 0
        agents = await fleets.agents(connection, shape.version.namespace, version.spec.requirements)
        if not agents:
            raise Invalid("No agent fits the node's placement.", code="no_agent")
        return [_Item(place, name, id_) for place, (id_, name) in enumerate(agents)], 0

    def _make(
        self,
        run: LockedRun,
        shape: FlowDefinition,
        node: NodeDefinition,
        version: JobVersion,
        items: Sequence[_Item],
        facts: Facts,
        now: datetime,
        *,
        total: int,
    ) -> _Made:
        made = _Made()
        task_facts = kept(facts, node.task_paths)
        base = _context(run, shape, task_facts)
        for item in items:
            context = base
            if item.place != WHOLE:
                context = {**base, "item": item.value, "index": item.place, "total": total}
            try:
                task, instance = _cast(run, node.spec, version, item, context, now)
            except Invalid as error:
                # Told of one of them; the others will hardly fail for another reason.
                made.failed, made.message = made.failed + 1, error.message
            else:
                made.tasks.append(task)
                made.instances.append(instance)
        return made


def _cast(
    run: LockedRun,
    node: FlowNode,
    version: JobVersion,
    item: _Item,
    context: dict[str, Any],
    now: datetime,
) -> tuple[NewTask, NewInstance]:
    id_ = ids.task_of_flow_node(run.id, node.name, item.place)
    params = render_value(node.params, context)
    if node.called is None:
        params = {**run.params, **params}
    else:
        if node.map is not None and not node.params:
            params = {"item": item.value}
        params = {**version.spec.params, **params}
    # Its own templates see what those of the node do; those of another job see their params only.
    seen = {key: value for key, value in context.items() if key != "params"}
    task = NewTask(
        id=id_,
        namespace_id=run.namespace_id,
        job_id=version.job_id,
        job_version=version.version,
        schedule_id=None,
        retry_of=None,
        params=_json(params),
        priority=run.priority if node.priority is None else node.priority,
        fire_at=min(run.fire_at, now),
        due_at=now,
        deadline_at=_later(now, node.deadline) if node.deadline else version.deadline_at(now),
        traceparent=None,
        created_by=None,
        flow_run_id=run.id,
        flow_node=node.name,
        map_index=item.place,
        flow_context=_json(seen) if node.called is None else None,
    )
    instance = NewInstance(
        id=ids.instance_of(id_, 1),
        task_id=id_,
        namespace_id=run.namespace_id,
        placement_id=version.placement_id,
        job_id=version.job_id,
        job_version=version.version,
        schedule_id=None,
        seq=1,
        attempt=1,
        priority=task.priority,
        fire_at=task.fire_at,
        due_at=now,
        deadline_at=task.deadline_at,
        lease_ms=version.lease_ms,
        concurrency_key=version.concurrency_key(params, task_id=id_, fire_at=task.fire_at),
        target_agent_id=item.agent,
        held_reason=version.held_at_first,
        flow_run_id=run.id,
    )
    return task, instance


def _wait(
    run: LockedRun, shape: FlowDefinition, node: FlowNode, facts: Facts, now: datetime, begun: StartedNodes
) -> None:
    context = _context(run, shape, facts)
    if node.approval is not None:
        message = render(node.approval.message, context) if node.approval.message else None
        begun.starts.append(
            NodeStart(node.name, reason=APPROVAL, message=message, wake_at=_later(now, node.approval.timeout))
        )
    elif node.wait_for_event is not None:
        wait = node.wait_for_event
        wake_at = _later(now, wait.timeout)
        begun.starts.append(NodeStart(node.name, reason=EVENT, wake_at=wake_at, event_name=wait.name))
    else:
        until = _moment(render(node.wait_until or "", context), now)
        begun.starts.append(NodeStart(node.name, reason=UNTIL, wake_at=until))
        if until <= now:
            begun.ends.append(NodeEnd(node.name, FlowNodeStatus.SUCCEEDED))


def _moment(text: str, now: datetime) -> datetime:
    try:
        return now + parse_duration(text)
    except (Invalid, OverflowError):
        pass
    try:
        at = datetime.fromisoformat(text)
    except ValueError:
        at = None
    if at is None or at.tzinfo is None:
        raise Invalid(
            f'"{text[:80]}" is neither a time with an offset nor a duration.', code="template_error"
        )
    return at


async def _left_over(
    connection: Connection, earlier: UUID, node: NodeDefinition
) -> tuple[list[_Item], int] | None:
    """Return what an earlier run of the node has left undone; None: it did not come that far."""
    before = (await store.earlier_nodes(connection, earlier, [node.spec.name])).get(node.spec.name)
    if before is None or before.items is None or before.status is FlowNodeStatus.SUCCEEDED:
        return None
    first, last = ids.range_of([earlier])
    done = await store.succeeded_items(connection, earlier, node.spec.name, first, last)
    left = [_item(node, place, value) for place, value in before.items if place not in done]
    return left, before.total - len(left)


def _item(node: NodeDefinition, place: int, value: Any) -> _Item:
    if node.spec.fleet is not None:
        return _Item(place, value["name"], UUID(value["id"]))
    return _Item(place, value)


def _stored(item: _Item) -> Any:
    return item.value if item.agent is None else {"id": str(item.agent), "name": item.value}


def _context(run: LockedRun, shape: FlowDefinition, facts: Facts) -> dict[str, Any]:
    return {
        "params": run.params,
        "nodes": facts,
        "flow": {"run_id": str(run.id), "name": shape.version.name, "fire_at": run.fire_at.isoformat()},
        "job": {"name": shape.version.name, "version": shape.version.version},
        "namespace": shape.version.namespace,
        "task": {},
    }


def _broken(name: str, error: Invalid) -> NodeEnd:
    reason = error.code if error.code != Invalid.code else "template_error"
    return NodeEnd(name, FlowNodeStatus.FAILED, reason=reason, message=error.message)


def _arrivals(instances: Sequence[NewInstance]) -> set[Topic]:
    return {
        flow_topic(one.task_id)
        if one.held_reason is HeldReason.FLOW
        else namespace_topic(one.namespace_id)
        if one.target_agent_id is not None
        else backlog_topic(one.namespace_id, one.placement_id, one.priority)
        for one in instances
    }


def _later(at: datetime, duration: timedelta | None) -> datetime | None:
    if duration is None:
        return None
    try:
        return at + duration
    except OverflowError:
        return None  # beyond the last year there is


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
