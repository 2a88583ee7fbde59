"""What follows when a task of a schedule has ended, in the transaction that ended it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import TypeAlias
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.states import HeldReason, TaskStatus
from hetuflow_server.cluster.hints import Topic, instance_topic, namespace_topic
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import create_transitions
from hetuflow_server.queue.rows import Ended
from hetuflow_server.schedules import store
from hetuflow_server.schedules.backfills import store as backfill_store
from hetuflow_server.schedules.backfills.store import EndedTasks, NextFires
from hetuflow_server.schedules.overlap import service as overlap_service
from hetuflow_server.schedules.task_template import TaskTemplate
from hetuflow_server.schedules.upstreams import Upstreams

# An instance with which its task has ended, and what the task ended as.
Over: TypeAlias = "tuple[Ended, TaskStatus]"
_WAITED = frozenset({HeldReason.OVERLAP.value, HeldReason.QUEUE.value})


class SchedulesOnTaskEnd:
    def __init__(self, versions: JobVersions) -> None:
        self._versions = versions
        self._upstreams = Upstreams(versions)

    async def take_turns(self, connection: Connection, over: Sequence[Over]) -> list[NextFires]:
        """Count what has ended for backfills, and take what they have room for; `follow` makes it."""
        counts = _counted(over)
        if not counts:
            return []
        await backfill_store.count_ended(connection, counts)
        return await self._take(connection, [one.id for one in counts])

    async def follow(
        self, connection: Connection, over: Sequence[Over], turns: Sequence[NextFires]
    ) -> set[Topic]:
        """Let the next fires of backfills and schedules go; return whom to tell after the commit."""
        hints = await self._make_all(connection, turns)
        hints |= await self._upstreams.fire(
            connection, [one.task_id for one, _ in over if one.followed and one.flow_run_id is None]
        )
        namespaces = {
            one.schedule_id: one.namespace_id
            for one, _ in over
            if one.schedule_id is not None and one.slot is None and one.held_reason not in _WAITED
        }
        if namespaces:
            decided = await overlap_service.decide_for(connection, list(namespaces), ended_now=True)
            hints |= {instance_topic(id_) for id_ in decided.skipped}
            if decided.released:
                hints |= {namespace_topic(namespace_id) for namespace_id in namespaces.values()}
        return hints

    async def fill(self, connection: Connection, backfill_ids: Sequence[UUID]) -> set[Topic]:
        """Make the tasks these backfills have room for, and note the end of those that have none left."""
        return await self._make_all(connection, await self._take(connection, backfill_ids))

    async def _take(self, connection: Connection, backfill_ids: Sequence[UUID]) -> list[NextFires]:
        turns = await backfill_store.take(connection, backfill_ids)
        await backfill_store.close(connection, backfill_ids)
        return turns

    async def _make_all(self, connection: Connection, turns: Sequence[NextFires]) -> set[Topic]:
        for turn in turns:
            await self._make(connection, turn)
        return {namespace_topic(turn.namespace_id) for turn in turns}

    async def _make(self, connection: Connection, turn: NextFires) -> None:
        version = await self._versions.get(connection, turn.job_id, turn.job_version)
        task_template = TaskTemplate(
            namespace_id=turn.namespace_id,
            job_id=turn.job_id,
            job_version=turn.job_version,
            placement_id=version.placement_id,
            schedule_id=turn.schedule_id,
            params=store.to_json(turn.params),
            priority=turn.priority,
            lease_ms=version.lease_ms,
            deadline=version.spec.deadline,
            created_by=turn.created_by,
            backfill_id=turn.id,
        )
        now = await store.clock(connection)
        cast = []
        for fire_at in turn.fires:
            id_ = ids.task_of_backfill(turn.id, turn.created_at, turn.schedule_id, fire_at)
            key = version.concurrency_key(turn.params, task_id=id_, fire_at=fire_at)
            cast.append(task_template.new_work(id_, fire_at, now, key))
        await create_transitions.create(
            connection, [task for task, _ in cast], [instance for _, instance in cast]
        )


def _counted(over: Sequence[Over]) -> list[EndedTasks]:
    done = Counter(one.backfill_id for one, _ in over if one.backfill_id)
    failed = Counter(one.backfill_id for one, status in over if status is TaskStatus.FAILED)
    return [EndedTasks(id_, number, failed[id_]) for id_, number in sorted(done.items())]
