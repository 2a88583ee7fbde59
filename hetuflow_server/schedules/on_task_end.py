"""The end hooks of schedules: backfills continue, downstream jobs start, and waiting fires are released."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from hetuflow_core.states import HeldReason, TaskStatus
from hetuflow_server.cluster.hints import Topic, instance_topic, namespace_topic
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue.end_hooks import EndHook, TaskEnds
from hetuflow_server.schedules.backfills import store as backfill_store
from hetuflow_server.schedules.backfills.fires import BackfillFires
from hetuflow_server.schedules.backfills.store import EndedTasks, NextFires
from hetuflow_server.schedules.overlap import service as overlap_service
from hetuflow_server.schedules.upstreams import Upstreams

_WAITED = frozenset({HeldReason.OVERLAP.value, HeldReason.QUEUE.value})


class BackfillsOnTaskEnd(EndHook):
    def __init__(self, fires: BackfillFires) -> None:
        self._fires = fires

    async def lock(self, connection: Connection, ends: TaskEnds, /) -> list[NextFires]:
        """Count the ended tasks of backfills, and take the fires that backfills have room for now."""
        done = Counter(end.instance.backfill_id for end in ends.tasks if end.instance.backfill_id)
        if not done:
            return []
        failed = Counter(end.instance.backfill_id for end in ends.tasks if end.status is TaskStatus.FAILED)
        counts = [EndedTasks(id_, number, failed[id_]) for id_, number in sorted(done.items())]
        await backfill_store.count_ended(connection, counts)
        return await self._fires.take(connection, [count.id for count in counts])

    async def follow(
        self, connection: Connection, _: TaskEnds, next_fires: Sequence[NextFires], /
    ) -> set[Topic]:
        return await self._fires.create(connection, next_fires) if next_fires else set()


class UpstreamsOnTaskEnd(EndHook):
    def __init__(self, versions: JobVersions) -> None:
        self._upstreams = Upstreams(versions)

    async def follow(self, connection: Connection, ends: TaskEnds, _: None, /) -> set[Topic]:
        upstreams = [
            end.instance.task_id
            for end in ends.tasks
            if end.instance.followed and end.instance.flow_run_id is None
        ]
        return await self._upstreams.fire(connection, upstreams) if upstreams else set()


class OverlapsOnTaskEnd(EndHook):
    cancel_reasons = frozenset({overlap_service.OVERLAP})

    async def follow(self, connection: Connection, ends: TaskEnds, _: None, /) -> set[Topic]:
        namespaces = {
            end.instance.schedule_id: end.instance.namespace_id
            for end in ends.tasks
            if end.instance.schedule_id is not None
            and end.instance.slot is None
            and end.instance.held_reason not in _WAITED
        }
        if not namespaces:
            return set()
        decided = await overlap_service.decide_for(connection, list(namespaces), ended_now=True)
        hints = {instance_topic(id_) for id_ in decided.skipped}
        if decided.released:
            hints |= {namespace_topic(namespace_id) for namespace_id in namespaces.values()}
        return hints
