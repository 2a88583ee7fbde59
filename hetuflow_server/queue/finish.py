"""Settling: an instance ends, its task is written, and what follows is inserted, all in one transaction.

Reservations that are given back unstarted go through here as well: both return what was taken of limits.
"""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from uuid import UUID

from msgspec import structs

from hetuflow_core import ids
from hetuflow_core.daemon import EndReason
from hetuflow_core.retry import (
    RETRYABLE,
    GiveUp,
    GiveUpReason,
    InstanceOutcome,
    Retry,
    RetryChange,
    clip_retry,
    decide,
)
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.states import InstanceStatus, TaskStatus
from hetuflow_server.cluster.hints import Topic, agent_topic, flow_topic, instance_topic, namespace_topic
from hetuflow_server.daemons.slots import DaemonSlots
from hetuflow_server.flows import store as flow_store, transitions as flow_transitions
from hetuflow_server.flows.advance import FlowAdvance, ItemEnd
from hetuflow_server.jobs.versions import JobVersion, JobVersions
from hetuflow_server.logs.output_tail import output_tail
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import create_transitions, live_transitions, tasks_store as task_store, transitions
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.live_transitions import EVICTED, TERMINATED
from hetuflow_server.queue.rows import Ended, EndedGroup, Ending, Freed, NewInstance, TaskChange
from hetuflow_server.queue.tasks_store import LiveInstance, LockedTask
from hetuflow_server.schedules.on_task_end import Over, SchedulesOnTaskEnd
from hetuflow_server.schedules.overlap.service import OVERLAP
from hetuflow_server.webhooks.on_task_end import WebhooksOnTaskEnd

NO_CHANGE = RetryChange()
EndVerb = Callable[[Connection, Sequence[Ending]], Awaitable[list[Ended]]]

# The reason of a task that failed by its deadline, and of what was ended for it.
DEADLINE = GiveUpReason.DEADLINE.value
_RUNNING = InstanceStatus.RUNNING
# Why the engine itself has asked for an end; whatever else asked was a person.
_PURPOSES = frozenset({OVERLAP, *EndReason})
# Why an attempt was asked to end and not its task, and what that makes of it.
_OF_ATTEMPTS = {TERMINATED: InstanceStatus.FAILED, EVICTED: InstanceStatus.LOST}
_TASK_STATUS_AFTER = {
    InstanceStatus.SUCCEEDED: TaskStatus.SUCCEEDED,
    InstanceStatus.SKIPPED: TaskStatus.SKIPPED,
    InstanceStatus.CANCELLED: TaskStatus.CANCELLED,
}


@dataclass(slots=True)
class FinishResult:
    # Instances that ended, or were released.
    ended: set[UUID] = field(default_factory=set)
    # Those whose agents were asked to end them, {instance: agent}.
    asked: dict[UUID, UUID] = field(default_factory=dict)
    # To be given once the transaction has committed.
    hints: set[Topic] = field(default_factory=set)


@dataclass(frozen=True, slots=True)
class FinishDecision:
    """What becomes of a task when one of its instances has ended."""

    change: TaskChange
    retry_at: datetime | None
    # What the retry asks of its agent otherwise than the attempt before.
    otherwise: RetryChange = NO_CHANGE


class Finisher:
    def __init__(
        self,
        versions: JobVersions,
        capacity: Capacity,
        clock: Clock,
        rng: random.Random,
        webhooks_on_task_end: WebhooksOnTaskEnd | None = None,
    ) -> None:
        self.flow_advance = FlowAdvance(versions)
        self._versions = versions
        self._following = SchedulesOnTaskEnd(versions)
        self._capacity = capacity
        self.classes = capacity.classes
        self.daemon_slots = DaemonSlots(versions, capacity.classes, rng)
        self._clock = clock
        self._rng = rng
        # Who wants to be told of tasks that end.
        self.webhooks_on_task_end = webhooks_on_task_end or WebhooksOnTaskEnd()

    async def succeed(self, connection: Connection, endings: Sequence[Ending]) -> FinishResult:
        """End what succeeded, in one statement; whatever does not come back is for `settle` to look at.

        Whoever follows one of them is told with `Hints.give_ended`: a topic for each would cost too much.
        """
        done = await transitions.succeed(connection, endings, sum_up=not self.webhooks_on_task_end.wanted)
        settled = FinishResult(done.ended)
        over = [(one, TaskStatus.SUCCEEDED) for one in done.each]
        await self._conclude(connection, settled, done.each, [], over, done.sums)
        return settled

    async def settle(self, connection: Connection, endings: Sequence[Ending], end: EndVerb) -> FinishResult:
        """End instances with `end`, which guards; whatever it does not return was not there to end."""
        settled = FinishResult()
        wanted = [ending.instance_id for ending in endings]
        runs = await self._lock_runs(connection, wanted)
        tasks = await task_store.lock_tasks_of(connection, wanted)
        if not tasks:
            return settled
        # Looked at under the lock: whether somebody has cancelled cannot change any more.
        live = await task_store.live_instances(connection, ids=wanted)
        versions = await self._versions_of(connection, tasks.values())
        known = [
            _classified(
                ending, live[ending.instance_id], task, versions[task.job_id, task.job_version, task.work]
            )
            for ending in _effective(endings, live)
            if (task := tasks.get(live[ending.instance_id].task_id)) is not None
        ]
        ended = {one.id: one for one in await end(connection, known)}
        settled.ended.update(ended)
        settled.hints.update(map(instance_topic, ended))
        changes, followers, over, nodes = [], [], [], []
        for ending in known:
            instance = live[ending.instance_id]
            task = tasks[instance.task_id]
            # What has ended stays as it is, whatever had left an instance of it behind.
            if ending.instance_id in ended and task.finished_at is None:
                version = versions[task.job_id, task.job_version, task.work]
                outcome = await _outcome(connection, ending, instance, version)
                verdict = self._judge(ending, outcome, task, instance, version)
                changes.append(verdict.change)
                if verdict.retry_at is not None:
                    placement_id = await self._capacity.classes.changed(
                        connection, instance.placement_id, verdict.otherwise
                    )
                    followers.append(_next_instance(task, instance, verdict, placement_id))
                else:
                    over.append((ended[ending.instance_id], verdict.change.status))
                    nodes += _item_ends(task, verdict.change)
        await transitions.write_tasks(connection, changes)
        await self._conclude(connection, settled, list(ended.values()), followers, over)
        # What it creates waits for nobody.
        settled.hints |= await self.flow_advance.ended(connection, runs, nodes)
        return settled

    async def cancel(self, connection: Connection, ids: Sequence[UUID], reason: str) -> FinishResult:
        """End what waits at once, and ask the agents of what they hold."""
        if not ids:
            return FinishResult()
        await self._lock_runs(connection, ids)
        await task_store.lock_tasks_of(connection, ids)
        await transitions.lock_instances(connection, ids)
        asked = await transitions.request_cancel(connection, ids)
        if asked:
            await live_transitions.unmark(connection, list(asked))
        agents = {id_: agent for id_, agent in asked.items() if agent is not None}
        flows = [id_ for id_, agent in asked.items() if agent is None]
        settled = await self.settle(
            connection,
            [Ending(id_, None, InstanceStatus.CANCELLED, reason=reason) for id_ in ids if id_ not in asked],
            transitions.cancel_unclaimed,
        )
        if flows:
            runs = await flow_transitions.request_cancels(connection, flows)
            settled.hints.update(flow_topic(run) for run in runs)
        settled.asked.update(agents)
        settled.hints.update(agent_topic(agent) for agent in agents.values())
        return settled

    async def terminate(self, connection: Connection, task_id: UUID, instance_id: UUID) -> FinishResult:
        """Ask the agent of a claimed instance to end it; its locked task is then tried again if it may be."""
        return await self._ask_to_end(connection, task_id, instance_id, TERMINATED)

    async def evict(self, connection: Connection, instance_id: UUID) -> FinishResult:
        """Ask the agent of a running instance to end it: its task runs elsewhere, if losses allow it."""
        await self._lock_runs(connection, [instance_id])
        tasks = await task_store.lock_tasks_of(connection, [instance_id])
        live = (await task_store.live_instances(connection, ids=[instance_id])).get(instance_id)
        # Whoever wants the whole task to end, or this attempt, has said so before.
        if live is None or live.task_id not in tasks or live.status != _RUNNING or live.cancel_requested:
            return FinishResult()
        return await self._ask_to_end(connection, live.task_id, instance_id, EVICTED)

    async def _ask_to_end(
        self, connection: Connection, task_id: UUID, instance_id: UUID, reason: str
    ) -> FinishResult:
        await transitions.lock_instances(connection, [instance_id])
        asked = await transitions.request_cancel(connection, [instance_id])
        agents = {id_: agent for id_, agent in asked.items() if agent is not None}
        if agents:
            await live_transitions.mark_to_end(connection, [task_id], reason)
        return FinishResult(asked=agents, hints={agent_topic(agent) for agent in agents.values()})

    async def release(self, connection: Connection, held: Sequence[tuple[UUID, UUID]]) -> FinishResult:
        """Give reservations back, by (instance, token); they are pending again, and nothing is spent."""
        return await self._released(connection, await transitions.release(connection, held))

    async def release_unstarted(
        self, connection: Connection, held: Sequence[tuple[UUID, UUID]]
    ) -> FinishResult:
        """Take back what was dealt to somebody who is gone, unless it has been started all the same."""
        return await self._released(connection, await transitions.release_unstarted(connection, held))

    async def release_expired(self, connection: Connection, namespace_id: int, most: int) -> FinishResult:
        return await self._released(
            connection, await transitions.release_expired(connection, namespace_id, most)
        )

    async def release_former_sessions(
        self, connection: Connection, agent_id: UUID, session_id: UUID | None
    ) -> FinishResult:
        """Give back what process lives of an agent other than this one had reserved and not started."""
        return await self._released(
            connection, await transitions.release_former_sessions(connection, agent_id, session_id)
        )

    async def _released(self, connection: Connection, freed: Sequence[Freed]) -> FinishResult:
        hints = await self._capacity.give_back(connection, freed)
        hints.update(namespace_topic(one.namespace_id) for one in freed)
        return FinishResult({one.id for one in freed}, hints=hints)

    async def _conclude(
        self,
        connection: Connection,
        settled: FinishResult,
        ended: Sequence[Ended],
        retries: Sequence[NewInstance],
        over: Sequence[Over],
        alike: Sequence[EndedGroup] = (),
    ) -> None:
        """Do what every end entails, however it came about: the one place for what it gives back.

        `over` are the ends of whole tasks, `alike` those that entail nothing but that. Backfills and slots
        of daemons are locked before limits, and whatever comes behind those waits for nobody.
        """
        await self.webhooks_on_task_end.announce(connection, over)
        turns = await self._following.take_turns(connection, over)
        successors, news = await self.daemon_slots.follow(connection, ended)
        settled.hints |= news
        # Before anything is created, which may have to wait for a key that this very end gives back.
        settled.hints |= await self._capacity.give_back(connection, ended, alike)
        await create_transitions.create_instances(connection, retries)
        settled.hints.update(namespace_topic(one.namespace_id) for one in retries)
        settled.hints |= await self.daemon_slots.create(connection, successors)
        settled.hints |= await self._following.follow(connection, over, turns)

    async def _lock_runs(
        self, connection: Connection, instances: Sequence[UUID]
    ) -> dict[UUID, flow_store.LockedRun]:
        """Lock the flow runs that instances are nodes of, which come before everything else."""
        runs = await flow_store.runs_of_instances(connection, instances)
        return await flow_store.lock_runs(connection, runs)

    async def _versions_of(
        self, connection: Connection, tasks: Iterable[LockedTask]
    ) -> dict[tuple[UUID, int, str | None], JobVersion]:
        wanted = {(task.job_id, task.job_version, task.work) for task in tasks}
        return {one: await self._versions.get(connection, *one) for one in wanted}

    def _judge(
        self,
        ending: Ending,
        outcome: InstanceOutcome,
        task: LockedTask,
        instance: LiveInstance,
        version: JobVersion,
    ) -> FinishDecision:
        lost = ending.status is InstanceStatus.LOST
        # What was cancelled before it ran has spent nothing either.
        spent = not lost and (ending.status is not InstanceStatus.CANCELLED or instance.status == _RUNNING)
        attempts, losses = task.attempts + spent, task.losses + lost
        change = TaskChange(
            id=task.id,
            status=_TASK_STATUS_AFTER.get(ending.status, TaskStatus.FAILED),
            reason=ending.reason,
            seq=task.seq,
            attempts=attempts,
            losses=losses,
            exit_code=ending.exit_code,
            due_at=task.due_at,
            output=ending.output,
        )
        if _ended_by_deadline(task) and ending.status is not InstanceStatus.SUCCEEDED:
            return FinishDecision(replace(change, status=TaskStatus.FAILED, reason=DEADLINE), None)
        if _cancelled(task, instance) and ending.status is not InstanceStatus.SUCCEEDED:
            # Somebody wanted it to end: however it ended, it is not tried again.
            reason = task.reason if task.reason in _PURPOSES else "cancelled"
            return FinishDecision(replace(change, status=TaskStatus.CANCELLED, reason=reason), None)
        if instance.slot is not None:
            # An instance of a daemon is followed by another task, not by another attempt.
            return FinishDecision(change, None)
        decision = decide(
            version.retry,
            outcome,
            attempts_spent=attempts,
            losses=losses,
            random=self._rng.random(),
        )
        retry_at = (
            clip_retry(self._clock.now() + decision.delay, task.deadline_at)
            if isinstance(decision, Retry)
            else decision
        )
        match retry_at:
            case datetime():
                change = replace(change, status=TaskStatus.WAITING_RETRY, seq=task.seq + 1, due_at=retry_at)
                return FinishDecision(
                    change, retry_at, decision.change if isinstance(decision, Retry) else NO_CHANGE
                )
            case GiveUp(reason=(GiveUpReason.QUARANTINED | GiveUpReason.DEADLINE) as reason):
                return FinishDecision(replace(change, reason=reason.value), None)
            case GiveUp():
                return FinishDecision(change, None)


def _effective(endings: Sequence[Ending], live: Mapping[UUID, LiveInstance]) -> Iterable[Ending]:
    """One end of each that can be ended: the first that is told by whoever has it, or by no holder at all.

    What is told twice within a transaction would be counted twice, and what somebody else tells beside the
    holder would be judged as if it had ended it.
    """
    first: dict[UUID, Ending] = {}
    for ending in endings:
        instance = live.get(ending.instance_id)
        if instance is not None and ending.token in {None, instance.token}:
            first.setdefault(ending.instance_id, ending)
    return first.values()


def _ended_by_deadline(task: LockedTask) -> bool:
    """Whether the rescuer has marked it; an agent may call any end "deadline", but not make it overdue."""
    return task.overdue and task.reason == DEADLINE


def _cancelled(task: LockedTask, instance: LiveInstance) -> bool:
    """Whether somebody wants the whole task to end, and not only this attempt."""
    return instance.cancel_requested and task.reason not in _OF_ATTEMPTS


def _classified(ending: Ending, instance: LiveInstance, task: LockedTask, version: JobVersion) -> Ending:
    """An exit code the job calls a skip is no failure; a cancel says when the deadline asked for it.

    An attempt that somebody has terminated has failed, and one that had to leave its agent is lost, however
    its agent calls it.
    """
    meant = _OF_ATTEMPTS.get(task.reason or "") if instance.cancel_requested else None
    if meant is not None and ending.status in {InstanceStatus.CANCELLED, InstanceStatus.FAILED}:
        return structs.replace(ending, status=meant, reason=task.reason)
    if ending.status is InstanceStatus.FAILED and ending.exit_code in version.skip_exit_codes:
        return structs.replace(ending, status=InstanceStatus.SKIPPED)
    if ending.status is InstanceStatus.CANCELLED and _ended_by_deadline(task):
        return structs.replace(ending, reason=DEADLINE)
    return ending


async def _outcome(
    connection: Connection, ending: Ending, instance: LiveInstance, version: JobVersion
) -> InstanceOutcome:
    """What rules are asked about; the log is read only for those that look at it."""
    reads = version.reads_output and ending.status in RETRYABLE
    return InstanceOutcome(
        status=ending.status,
        exit_code=ending.exit_code,
        signal=ending.signal,
        oom=ending.oom,
        output_tail=await output_tail(connection, instance.id, instance.claim_no) if reads else "",
    )


def _item_ends(task: LockedTask, change: TaskChange) -> list[ItemEnd]:
    """What the end of a task is to the flow run it is a node of."""
    if task.flow_run_id is None or task.flow_node is None:
        return []
    return [ItemEnd(task.flow_run_id, task.flow_node, change.status, change.reason, change.output)]


def _next_instance(
    task: LockedTask, instance: LiveInstance, verdict: FinishDecision, placement_id: int
) -> NewInstance:
    change = verdict.change
    return NewInstance(
        id=ids.instance_of(task.id, change.seq),
        task_id=task.id,
        namespace_id=task.namespace_id,
        placement_id=placement_id,
        job_id=task.job_id,
        job_version=task.job_version,
        # A backfill's tasks do not count for the overlap of their schedule.
        schedule_id=None if task.backfill_id else task.schedule_id,
        backfill_id=task.backfill_id,
        seq=change.seq,
        # Losses spend nothing: the next one is the same attempt again.
        attempt=change.attempts + 1,
        priority=task.priority,
        fire_at=task.fire_at,
        due_at=change.due_at,
        deadline_at=task.deadline_at,
        lease_ms=instance.lease_ms,
        concurrency_key=instance.concurrency_key,
        target_agent_id=instance.target_agent_id,
        flow_run_id=task.flow_run_id,
    )
