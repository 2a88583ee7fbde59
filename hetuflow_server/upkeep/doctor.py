"""The doctor: looks for what should not be, and puts right what can be.

Safe beside running servers: every look is one snapshot, every repair a transaction that guards for itself.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.states import InstanceStatus, TaskStatus
from hetuflow_server.jobs.versions import JobVersion, JobVersions
from hetuflow_server.limits import store as limit_store
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.postgres.keyset import FIRST
from hetuflow_server.queue import create_transitions, tasks_store as task_store, transitions
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.rows import Ending, NewInstance, TaskChange
from hetuflow_server.queue.tasks_store import LockedTask
from hetuflow_server.upkeep import consistency_store
from hetuflow_server.upkeep.doctor_checks import DoctorChecks
from hetuflow_server.upkeep.findings import BATCH, Finding, sentence


@dataclass(frozen=True, slots=True)
class Doctor:
    database: Database
    capacity: Capacity
    versions: JobVersions
    # Ids of the keys that secrets may be encrypted with; None: they are not known here.
    key_ids: Sequence[str] | None = None

    async def examine(self, *, repair: bool) -> list[Finding]:
        """Return what was found, at most a batch of each kind, and how much of it was put right."""
        found = [
            await self._counts(repair=repair),
            await self._tasks_without_instance(repair=repair),
            await self._instances_without_task(repair=repair),
            await self._instances_without_job(),
            await self._instances_without_deadline(repair=repair),
            *await DoctorChecks(self.database, self.capacity, self.key_ids).examine(repair=repair),
        ]
        return [finding for finding in found if finding.count]

    async def _counts(self, *, repair: bool) -> Finding:
        async with self.database.transaction() as connection:
            wrong = await consistency_store.wrong_counts(connection)
            if wrong and repair:
                await consistency_store.lock_counts(connection)
                # Looked at again: what was under way before the lock may have ended meanwhile.
                wrong = await consistency_store.wrong_counts(connection)
                await limit_store.correct(connection, {one.scope: one.under_way for one in wrong})
        told = [f"{one.scope.name} says {one.in_use}, {one.under_way} are under way" for one in wrong]
        return Finding(
            "limit_counts", sentence("Counts of limits are wrong", told), len(wrong), repair * len(wrong)
        )

    async def _tasks_without_instance(self, *, repair: bool) -> Finding:
        found: list[UUID] = []
        position: UUID | None = FIRST
        while position is not None and len(found) < BATCH:
            async with self.database.transaction() as connection:
                more, position = await consistency_store.tasks_without_instance(
                    connection, BATCH - len(found), position
                )
            found += more
        repaired = 0
        if found and repair:
            async with self.database.transaction() as connection:
                repaired = await self._revive(connection, found)
        return Finding(
            "tasks_without_instance",
            sentence("Tasks are unfinished and have no instance", found),
            len(found),
            repaired,
        )

    async def _instances_without_task(self, *, repair: bool) -> Finding:
        async with self.database.transaction() as connection:
            found = await consistency_store.instances_without_task(connection, BATCH)
            repaired = 0
            if found and repair:
                endings = [Ending(id_, None, InstanceStatus.CANCELLED, reason="stranded") for id_ in found]
                ended = await transitions.end_stranded(connection, endings)
                await self.capacity.give_back(connection, ended)
                repaired = len(ended)
        return Finding(
            "instances_without_task",
            sentence("Instances are in the queue whose task has ended or is gone", found),
            len(found),
            repaired,
        )

    async def _instances_without_job(self) -> Finding:
        async with self.database.transaction() as connection:
            found = await consistency_store.instances_without_job(connection, BATCH)
        return Finding(
            "instances_without_job",
            sentence("Instances have lost their job version or class, so cancel their tasks", found),
            len(found),
        )

    async def _instances_without_deadline(self, *, repair: bool) -> Finding:
        async with self.database.transaction() as connection:
            found = await consistency_store.without_deadline(connection, BATCH)
            repaired = await consistency_store.copy_deadlines(connection, found) if found and repair else 0
        return Finding(
            "instances_without_deadline",
            sentence("Instances have another deadline than their task", found),
            len(found),
            repaired,
        )

    async def _revive(self, connection: Connection, found: Sequence[UUID]) -> int:
        """Give tasks the instance they wait for: the one their number says, or the next if that has ended."""
        tasks = await task_store.lock_tasks(connection, found)
        live = await task_store.live_instances(connection, tasks=list(tasks))
        lost = {id_: one for id_, one in tasks.items() if one.finished_at is None}
        for instance in live.values():
            lost.pop(instance.task_id, None)
        given_up = await self._give_up(connection, lost)
        params = await consistency_store.params_of(connection, list(lost))
        newest = [ids.instance_of(one.id, one.seq) for one in lost.values()]
        ended = await consistency_store.in_history(connection, newest)
        instances = []
        for task in lost.values():
            version = await self.versions.get(connection, task.job_id, task.job_version, task.work)
            seq = task.seq + (ids.instance_of(task.id, task.seq) in ended)
            instances.append(_instance(task, version, seq, params[task.id]))
        await consistency_store.renumber(connection, [(one.task_id, one.seq) for one in instances])
        await create_transitions.create_instances(connection, instances)
        return len(instances) + given_up

    async def _give_up(self, connection: Connection, lost: dict[UUID, LockedTask]) -> int:
        """End tasks of daemons: whoever keeps those running has filled their slot, or does so."""
        of_daemons = await consistency_store.of_daemons(connection, list(lost))
        changes = [
            TaskChange(
                id=task.id,
                status=TaskStatus.CANCELLED,
                reason="stranded",
                seq=task.seq,
                attempts=task.attempts,
                losses=task.losses,
                exit_code=None,
                due_at=task.due_at,
            )
            for task in (lost.pop(id_) for id_ in sorted(of_daemons))
        ]
        await transitions.write_tasks(connection, changes)
        return len(changes)


def _instance(task: LockedTask, version: JobVersion, seq: int, params: dict[str, object]) -> NewInstance:
    return NewInstance(
        id=ids.instance_of(task.id, seq),
        task_id=task.id,
        namespace_id=task.namespace_id,
        placement_id=version.placement_id,
        job_id=task.job_id,
        job_version=task.job_version,
        schedule_id=task.schedule_id,
        seq=seq,
        attempt=task.attempts + 1,
        priority=task.priority,
        fire_at=task.fire_at,
        due_at=task.due_at,
        deadline_at=task.deadline_at,
        lease_ms=version.lease_ms,
        concurrency_key=version.concurrency_key(params, task_id=task.id, fire_at=task.fire_at),
        held_reason=version.held_at_first,
        flow_run_id=task.flow_run_id,
    )
