"""Creating the tasks of backfills, a few at a time."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from hetuflow_core import ids
from hetuflow_server.cluster.hints import Topic, namespace_topic
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import create_transitions
from hetuflow_server.schedules import store as schedule_store
from hetuflow_server.schedules.backfills import store
from hetuflow_server.schedules.backfills.store import NextFires
from hetuflow_server.schedules.task_template import TaskTemplate


class BackfillFires:
    def __init__(self, versions: JobVersions) -> None:
        self._versions = versions

    async def fill(self, connection: Connection, backfill_ids: Sequence[UUID]) -> set[Topic]:
        """Create the tasks that these backfills have room for, and close backfills that have ended."""
        return await self.create(connection, await self.take(connection, backfill_ids))

    async def take(self, connection: Connection, backfill_ids: Sequence[UUID]) -> list[NextFires]:
        """Lock these backfills, count their next fires as created, and close backfills that have ended."""
        next_fires = await store.take(connection, backfill_ids)
        await store.close(connection, backfill_ids)
        return next_fires

    async def create(self, connection: Connection, next_fires: Sequence[NextFires]) -> set[Topic]:
        """Create the tasks of fires that were taken; return the wake-ups to send after the commit."""
        for fires in next_fires:
            await self._create(connection, fires)
        return {namespace_topic(fires.namespace_id) for fires in next_fires}

    async def _create(self, connection: Connection, backfill: NextFires) -> None:
        version = await self._versions.get(connection, backfill.job_id, backfill.job_version)
        task_template = TaskTemplate(
            namespace_id=backfill.namespace_id,
            job_id=backfill.job_id,
            job_version=backfill.job_version,
            placement_id=version.placement_id,
            schedule_id=backfill.schedule_id,
            params=schedule_store.to_json(backfill.params),
            priority=backfill.priority,
            lease_ms=version.lease_ms,
            deadline=version.spec.deadline,
            created_by=backfill.created_by,
            backfill_id=backfill.id,
        )
        now = await database_time(connection)
        work = []
        for fire_at in backfill.fires:
            id_ = ids.task_of_backfill(backfill.id, backfill.created_at, backfill.schedule_id, fire_at)
            key = version.concurrency_key(backfill.params, task_id=id_, fire_at=fire_at)
            work.append(task_template.new_work(id_, fire_at, now, key))
        await create_transitions.create(
            connection, [task for task, _ in work], [instance for _, instance in work]
        )
