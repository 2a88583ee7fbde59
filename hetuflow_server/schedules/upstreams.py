"""Jobs that run after others: whoever ends a task makes what is to follow, once for each end."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.errors import Invalid
from hetuflow_core.states import HeldReason
from hetuflow_server.cluster.hints import Topic, flow_topic, namespace_topic
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import create_transitions
from hetuflow_server.queue.rows import NewInstance, NewTask
from hetuflow_server.schedules import store as schedule_store, upstreams_store as store
from hetuflow_server.schedules.task_template import TaskTemplate
from hetuflow_server.schedules.upstreams_store import Follower


class Upstreams:
    def __init__(self, versions: JobVersions) -> None:
        self._versions = versions

    async def fire(self, connection: Connection, tasks: Sequence[UUID]) -> set[Topic]:
        """Make the tasks that follow these, which have just ended; return whom to tell after the commit."""
        found = await store.followers(connection, tasks)
        if not found:
            return set()
        made = [one for follower in found if (one := await self._cast(connection, follower)) is not None]
        await create_transitions.create(
            connection, [task for task, _ in made], [instance for _, instance in made]
        )
        return {
            flow_topic(instance.task_id)
            if instance.held_reason is HeldReason.FLOW
            else namespace_topic(instance.namespace_id)
            for _, instance in made
        }

    async def _cast(self, connection: Connection, follower: Follower) -> tuple[NewTask, NewInstance] | None:
        version = await self._versions.get(connection, follower.job_id, follower.job_version)
        spec, params = follower.spec, {**version.spec.params, **follower.spec.get("params", {})}
        priority = spec.get("priority")
        task_template = TaskTemplate(
            namespace_id=version.namespace_id,
            job_id=version.job_id,
            job_version=version.version,
            placement_id=version.placement_id,
            schedule_id=follower.schedule_id,
            params=schedule_store.to_json(params),
            priority=version.spec.priority if priority is None else priority,
            lease_ms=version.lease_ms,
            deadline=version.spec.deadline,
            waits=spec.get("overlap", "allow") != "allow",
        )
        id_ = ids.task_of_upstream(follower.schedule_id, follower.upstream_id, follower.ended_at)
        now = await database_time(connection)
        try:
            key = version.concurrency_key(params, task_id=id_, fire_at=follower.ended_at)
        except Invalid:
            return None  # its parameters have not fitted since the job was changed
        return task_template.new_work(id_, follower.ended_at, max(now, follower.ended_at), key)
