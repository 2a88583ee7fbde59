"""Advancing: in the transaction that ends something of a run, whatever follows from that begins.

The run is locked before anything else. What needs further locks (ending other nodes, ending the run itself)
or more than one batch is left to the next transaction of this server; a row of `sched_flow_advance` says so.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from uuid import UUID

from hetuflow_core.errors import HetuflowError
from hetuflow_core.expressions import Values, condition
from hetuflow_core.flow import Missing, NodeState, Step, advance, first_step, may_start, outcome
from hetuflow_core.jobfile.flow_references import CONDITION_NAMES, references_of_condition
from hetuflow_core.states import FlowNodeStatus, FlowRunStatus, TaskStatus
from hetuflow_server.cluster.hints import Topic, flow_topic
from hetuflow_server.flows import store, transitions
from hetuflow_server.flows.definitions import FlowDefinition, FlowDefinitions
from hetuflow_server.flows.node_starts import NodeStarts
from hetuflow_server.flows.node_values import facts_of
from hetuflow_server.flows.store import LockedRun
from hetuflow_server.flows.transitions import ItemCount, NodeEnd
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.postgres.database import Connection

NODE_FAILED = "node_failed"
_FAILURES = frozenset({FlowNodeStatus.FAILED, FlowNodeStatus.CANCELLED})


@dataclass(frozen=True, slots=True)
class ItemEnd:
    """A task of a node has ended."""

    run_id: UUID
    node: str
    status: TaskStatus
    reason: str | None
    # JSON
    output: str | None


class FlowAdvance:
    def __init__(self, versions: JobVersions) -> None:
        self.definitions = FlowDefinitions(versions)
        self.starts = NodeStarts(versions)

    async def ended(
        self, connection: Connection, runs: Mapping[UUID, LockedRun], ends: Sequence[ItemEnd]
    ) -> set[Topic]:
        """Count tasks that have ended, all of them of locked runs, and begin with what follows."""
        by_run: defaultdict[UUID, list[ItemEnd]] = defaultdict(list)
        for end in ends:
            by_run[end.run_id].append(end)
        hints: set[Topic] = set()
        for run_id, some in by_run.items():
            run = runs.get(run_id)
            if run is not None and run.status == FlowRunStatus.RUNNING:
                hints |= await self._ended(connection, run, some)
        return hints

    async def begin(
        self, connection: Connection, run: LockedRun, done: Mapping[str, FlowNodeStatus]
    ) -> set[Topic]:
        """Take the first step of a run; `done` are nodes that an earlier run has done."""
        shape = await self.definitions.of_run(connection, run)
        return await _RunAdvance(self.starts, connection, run, shape).begin(done)

    async def conclude(
        self,
        connection: Connection,
        run: LockedRun,
        ends: Sequence[NodeEnd],
        between: Callable[[], Awaitable[None]] | None = None,
    ) -> tuple[dict[str, FlowNodeStatus], set[Topic]]:
        """End nodes of a locked run and begin with what follows; return those that had not ended.

        `between` is what has to be done in between, before limits are locked.
        """
        shape = await self.definitions.of_run(connection, run)
        run_advance = _RunAdvance(self.starts, connection, run, shape)
        return await run_advance.conclude(ends, between), run_advance.hints

    async def more(self, connection: Connection, run: LockedRun) -> tuple[int, set[Topic]]:
        """Start items that did not fit into the transactions before; return how many nodes had any."""
        shape = await self.definitions.of_run(connection, run)
        run_advance = _RunAdvance(self.starts, connection, run, shape)
        started = 0
        for row in (await store.unstarted(connection, run.id)).values():
            started += await run_advance.go_on(row)
        return started, run_advance.hints

    async def _ended(self, connection: Connection, run: LockedRun, ends: Sequence[ItemEnd]) -> set[Topic]:
        shape = await self.definitions.of_run(connection, run)
        run_advance = _RunAdvance(self.starts, connection, run, shape)
        await run_advance.count(ends)
        return run_advance.hints


class _RunAdvance:
    """One run's way through one transaction."""

    def __init__(
        self, starts: NodeStarts, connection: Connection, run: LockedRun, shape: FlowDefinition
    ) -> None:
        self.hints: set[Topic] = set()
        self._starts = starts
        self._connection = connection
        self._run = run
        self._shape = shape
        self._ending = run.ending is not None
        self._open = run.nodes_open

    async def begin(self, done: Mapping[str, FlowNodeStatus]) -> set[Topic]:
        self._open -= len(done)
        await self._follow(done, first=True)
        return self.hints

    async def count(self, ends: Sequence[ItemEnd]) -> None:
        counts, last = _counted(ends), {end.node: end for end in ends}
        rows = await transitions.count_items(self._connection, self._run.id, counts)
        over = []
        for name, row in rows.items():
            node = self._shape.nodes[name]
            status = outcome(node.spread(row.total), row.counts, ending=self._ending)
            if status is not None:
                over.append(_node_end(name, status, last[name], spread=node.is_spread))
            elif node.is_spread and not self._ending:
                await self.go_on(row)
        await self.conclude(over)

    async def go_on(self, row: store.NodeRow) -> int:
        """Start more items of a node; 1 if there were any."""
        counted, hints = await self._starts.more(self._connection, self._run, self._shape, row)
        self.hints |= hints
        if counted is None:
            return 0
        after = (await transitions.count_items(self._connection, self._run.id, [counted])).get(row.node)
        if after is not None:
            spread = self._shape.nodes[row.node].spread(after.total)
            status = outcome(spread, after.counts)
            if status is not None:
                await self.conclude([NodeEnd(row.node, status, reason="template_error")])
            elif may_start(spread, after.counts):
                await self._request()
        return 1

    async def conclude(
        self, ends: Sequence[NodeEnd], between: Callable[[], Awaitable[None]] | None = None
    ) -> dict[str, FlowNodeStatus]:
        ended = await self._end(ends)
        if between is not None:
            await between()
        await self._follow(ended)
        return ended

    async def _end(self, ends: Sequence[NodeEnd]) -> dict[str, FlowNodeStatus]:
        if not ends:
            return {}
        ended = await transitions.end_nodes(self._connection, self._run.id, ends)
        self._open -= len(ended)
        return ended

    async def _follow(self, ended: Mapping[str, FlowNodeStatus], *, first: bool = False) -> None:
        """Decide and act until nothing more follows: what starts may be over at once."""
        pending = dict(ended)
        while (pending or first) and not self._ending:
            step, broken = await self._decide(pending, first=first)
            first = False
            if step.abort is not None:
                await self._abort(step.abort)
                break
            pending = await self._take(step, broken)
        if self._ending or not self._open:
            await self._request()

    async def _decide(
        self, ended: Mapping[str, FlowNodeStatus], *, first: bool
    ) -> tuple[Step, dict[str, NodeEnd]]:
        """Return what follows, and the nodes whose condition could not be told."""
        graph = self._shape.graph
        wanted = {below for name in ended for below in graph.downstream[name]}
        states: dict[str, NodeState] = {}
        conditions: dict[str, bool] = {}
        broken: dict[str, NodeEnd] = {}
        step: Step | Missing = Missing(frozenset(wanted))
        while isinstance(step, Missing):
            if step.states:
                rows = await store.nodes(self._connection, self._run.id, sorted(step.states))
                states |= {name: row.state for name, row in rows.items()}
            for name in sorted(step.conditions):
                conditions[name] = await self._holds(name, broken)
            step = (
                first_step(graph, conditions, ended) if first else advance(graph, states, ended, conditions)
            )
        return step, broken

    async def _holds(self, name: str, broken: dict[str, NodeEnd]) -> bool:
        source = self._shape.nodes[name].spec.when or "true"
        paths = references_of_condition(source)
        facts = await facts_of(self._connection, self._run, self._shape, paths)
        flow = {"run_id": str(self._run.id), "name": self._shape.version.name}
        try:
            values = Values({"nodes": facts, "params": self._run.params, "flow": flow})
            return condition(source, CONDITION_NAMES).holds(values)
        except HetuflowError as error:
            broken[name] = NodeEnd(
                name, FlowNodeStatus.FAILED, reason="condition_error", message=error.message
            )
            return True  # it starts, and fails

    async def _take(self, step: Step, broken: Mapping[str, NodeEnd]) -> dict[str, FlowNodeStatus]:
        """Write a step down; return what of it is over already."""
        if step.tallies:
            await transitions.tally(self._connection, self._run.id, step.tallies)
        skipped = [NodeEnd(name, FlowNodeStatus.SKIPPED, reason=why) for name, why in step.skip.items()]
        await self._end(skipped)
        starting = [name for name in step.start if name not in broken]
        begun = await self._starts.start(self._connection, self._run, self._shape, starting)
        self.hints |= begun.hints
        if begun.starts:
            await transitions.start_nodes(self._connection, self._run.id, begun.starts)
        if begun.unfinished:
            await self._request()
        return await self._end([*begun.ends, *(broken[name] for name in step.start if name in broken)])

    async def _abort(self, node: str) -> None:
        await transitions.end_early(
            self._connection, self._run.id, FlowRunStatus.FAILED, NODE_FAILED, f"The node {node} failed."
        )
        self._ending = True

    async def _request(self) -> None:
        await transitions.request_advance(self._connection, self._run.id, self._run.namespace_id)
        self.hints.add(flow_topic(self._run.id))


def _counted(ends: Sequence[ItemEnd]) -> list[ItemCount]:
    counts: defaultdict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
    for end in ends:
        place = {TaskStatus.SUCCEEDED: 0, TaskStatus.SKIPPED: 2}.get(end.status, 1)
        counts[end.node][place] += 1
    return [
        ItemCount(name, succeeded=succeeded, failed=failed, skipped=skipped)
        for name, (succeeded, failed, skipped) in sorted(counts.items())
    ]


def _node_end(name: str, status: FlowNodeStatus, last: ItemEnd, *, spread: bool) -> NodeEnd:
    if spread:
        return NodeEnd(name, status)
    if status is FlowNodeStatus.FAILED and last.status is TaskStatus.CANCELLED:
        status = FlowNodeStatus.CANCELLED
    return NodeEnd(name, status, reason=last.reason, output=last.output)
