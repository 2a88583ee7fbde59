"""Errands: what has to be done with a run in a transaction of its own.

A run begins when its flow's instance is due; what did not fit into one transaction goes on; an ending run's
nodes are ended; and when nothing is open any more, the run ends and with it the instance that stands for it.
Each step is short and guards for itself, so any server may do it, twice as well as once.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Final
from uuid import UUID

import msgspec
import structlog

from hetuflow_core.jobfile import FlowSpec
from hetuflow_core.states import FlowNodeStatus, FlowRunStatus, InstanceStatus
from hetuflow_server.cluster.hints import FLOW, Hints, Topic, instance_topic
from hetuflow_server.flows import store, transitions as flow_transitions
from hetuflow_server.flows.advance import FlowAdvance
from hetuflow_server.flows.store import DueFlow, LockedRun
from hetuflow_server.flows.transitions import NewRun
from hetuflow_server.jobs.versions import JobVersion, JobVersions
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.queue import tasks_store as task_store, transitions
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.end_decisions import DEADLINE
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.queue.rows import Claimable, Ending
from hetuflow_server.queue.tasks_store import LockedTask
from hetuflow_server.schedules import store as schedule_store

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.flows")

# So many instances are ended in one transaction.
_BATCH: Final = 200
# However much a run has to do, others get their turn after so many steps.
_MOST_STEPS: Final = 1_000
_ENDED_AS: Final = {
    FlowRunStatus.SUCCEEDED: InstanceStatus.SUCCEEDED,
    FlowRunStatus.FAILED: InstanceStatus.FAILED,
    FlowRunStatus.CANCELLED: InstanceStatus.CANCELLED,
}


class FlowFollowUps:
    """The memory of one server: which runs it has to go on with."""

    def __init__(
        self,
        database: Database,
        hints: Hints,
        versions: JobVersions,
        flow_advance: FlowAdvance,
        finisher: Finisher,
        capacity: Capacity,
    ) -> None:
        self._database = database
        self._hints = hints
        self._versions = versions
        self._flow_advance = flow_advance
        self._finisher = finisher
        self._capacity = capacity
        self._waiting: dict[UUID, None] = {}
        self._wake: Callable[[], None] | None = None
        hints.listen(self._on_hints)

    def when_wanted(self, wake: Callable[[], None]) -> None:
        """Call `wake` when there is something to do."""
        self._wake = wake

    async def run_once(self) -> int:
        """Go on with the runs this server was told of."""
        done = 0
        while self._waiting:
            run_id = next(iter(self._waiting))
            del self._waiting[run_id]
            done += await self.go_on(run_id)
        return done

    async def go_on(self, run_id: UUID) -> int:
        """Do all that can be done with a run now; return how many steps that took."""
        for number in range(_MOST_STEPS):
            if not await self._step(run_id):
                return number
        self._waiting[run_id] = None
        return _MOST_STEPS

    def _on_hints(self, topics: Collection[Topic], *, relayed: bool) -> None:
        mine = [topic.id for topic in topics if topic.kind == FLOW and isinstance(topic.id, UUID)]
        if mine and not relayed:
            self._waiting.update(dict.fromkeys(mine))
            if self._wake is not None:
                self._wake()

    async def _step(self, run_id: UUID) -> bool:
        """Take one step; False when there is none to take."""
        async with self._database.transaction() as connection:
            run = (await store.lock_runs(connection, [run_id])).get(run_id)
            if run is None:
                hints = await self._begin(connection, run_id)
                more = False
            elif run.status != FlowRunStatus.RUNNING:
                hints, more = set[Topic](), False
            else:
                hints, more = await self._proceed(connection, run)
        self._hints.give(hints)
        if run is not None and run.status != FlowRunStatus.RUNNING:
            await self._finish(run)
        return more

    async def _begin(self, connection: Connection, task_id: UUID) -> set[Topic]:
        """Begin the run of a flow's task that is due, if there is room for it."""
        task = (await task_store.lock_tasks(connection, [task_id])).get(task_id)
        due = await store.due_flow(connection, task_id) if task is not None else None
        if task is None or due is None or not await self._admitted(connection, task, due):
            return set()
        version = await self._versions.get(connection, task.job_id, task.job_version)
        flow = version.spec.flow
        if flow is None or not await transitions.start_flow(connection, due.instance_id):
            return set()
        run = await self._insert(connection, task, due, version, flow)
        done: dict[str, FlowNodeStatus] = {}
        if due.from_failed and due.retry_of is not None:
            done = await self._take_over(connection, run, due.retry_of)
        return await self._flow_advance.begin(connection, run, done) | {instance_topic(due.instance_id)}

    async def _admitted(self, connection: Connection, task: LockedTask, due: DueFlow) -> bool:
        await self._capacity.classes.learn(connection, [due.placement_id])
        row = Claimable(
            id=due.instance_id,
            task_id=task.id,
            namespace_id=task.namespace_id,
            placement_id=due.placement_id,
            priority=task.priority,
            due_at=task.due_at,
            concurrency_key=due.concurrency_key,
            target_agent_id=None,
            job_id=task.job_id,
            job_version=task.job_version,
            attempt=1,
            fire_at=task.fire_at,
            lease_ms=0,  # no agent runs it
            slot=None,
        )
        return not (await self._capacity.take(connection, [row])).refused

    async def _insert(
        self, connection: Connection, task: LockedTask, due: DueFlow, version: JobVersion, flow: FlowSpec
    ) -> LockedRun:
        now = await database_time(connection)
        timeout = version.timeout
        new = NewRun(
            id=task.id,
            namespace_id=task.namespace_id,
            job_id=task.job_id,
            job_version=task.job_version,
            parent_id=due.parent_id,
            depth=0 if due.depth is None else due.depth + 1,
            retry_of=due.retry_of if due.from_failed else None,
            params=schedule_store.to_json(due.params),
            priority=task.priority,
            nodes_open=len(flow.nodes),
            fire_at=task.fire_at,
            deadline_at=None if timeout is None else now + timeout,
        )
        await flow_transitions.begin(connection, new, [node.name for node in flow.nodes])
        return (await store.lock_runs(connection, [task.id]))[task.id]

    async def _take_over(
        self, connection: Connection, run: LockedRun, earlier: UUID
    ) -> dict[str, FlowNodeStatus]:
        """Take over what succeeded before and is not behind a failure."""
        graph = (await self._flow_advance.definitions.of_run(connection, run)).graph
        before = await store.earlier_nodes(connection, earlier, list(graph.nodes))
        failed = {
            name
            for name, node in before.items()
            if node.status in {FlowNodeStatus.FAILED, FlowNodeStatus.CANCELLED}
        }
        wanted = [name for name in graph.nodes if not graph.ancestors(name) & failed]
        reused = await flow_transitions.reuse_nodes(connection, run.id, earlier, wanted)
        return dict.fromkeys(sorted(reused), FlowNodeStatus.SUCCEEDED)

    async def _proceed(self, connection: Connection, run: LockedRun) -> tuple[set[Topic], bool]:
        """Take the next step of a running run; return whether there is another."""
        ending = run.ending is not None or await self._is_cancelled(connection, run)
        hints: set[Topic] = set()
        more = 0
        if ending:
            await flow_transitions.cancel_idle_nodes(connection, run.id)
            live = await store.live_of(connection, run.id, _BATCH)
            settled = await self._finisher.cancel(connection, live, "aborted")
            hints, more = settled.hints, len(live)
        elif strays := await store.strays_of(connection, run.id, _BATCH):
            settled = await self._finisher.cancel(connection, strays, "by_hand")
            hints, more = settled.hints, len(strays)
        else:
            more, hints = await self._flow_advance.more(connection, run)
        if more:
            await flow_transitions.request_advance(connection, run.id, run.namespace_id)
            return hints, True
        if await flow_transitions.finish_run(connection, run.id) is not None:
            # The row stays until the instance that stands for the run has ended as well.
            await flow_transitions.request_advance(connection, run.id, run.namespace_id)
            return hints, True
        await flow_transitions.settle_advance(connection, run.id)
        return hints, False

    async def _is_cancelled(self, connection: Connection, run: LockedRun) -> bool:
        """Whether somebody wants the task of the run ended; it is ending from then on."""
        own = await store.own_instance(connection, run.id)
        if own is None or not own.cancel_requested:
            return False
        overdue = own.reason == DEADLINE
        await flow_transitions.end_early(
            connection,
            run.id,
            FlowRunStatus.FAILED if overdue else FlowRunStatus.CANCELLED,
            own.reason or "cancelled",
        )
        return True

    async def _finish(self, run: LockedRun) -> None:
        """End the instance that stands for a run, which locks the run it is a node of."""
        async with self._database.transaction() as connection:
            own = await store.own_instance(connection, run.id)
            hints: set[Topic] = set()
            if own is not None:
                shape = await self._flow_advance.definitions.of_run(connection, run)
                output = await store.outputs(connection, run.id, shape.sinks)
                ending = Ending(
                    own.id,
                    None,
                    _ENDED_AS[FlowRunStatus(run.status)],
                    reason=run.reason,
                    message=run.message,
                    output=msgspec.json.encode(output).decode() if output else None,
                )
                settled = await self._finisher.settle(connection, [ending], transitions.finish_flow)
                hints = settled.hints
            await flow_transitions.settle_advance(connection, run.id)
        self._hints.give(hints)
        log.debug("A flow run has ended.", run=str(run.id), status=run.status)
