"""What the doctor looks at beside tasks and limits: flows, held work, events, secrets, logs, webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta

from hetuflow_core import ids
from hetuflow_server.flows import transitions as flow_transitions
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Database
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.schedules.overlap.service import decide_for
from hetuflow_server.upkeep import dangling_rows_store
from hetuflow_server.upkeep.findings import BATCH, Finding, sentence

_LATELY = timedelta(days=1)
_SETTLED = timedelta(minutes=5)


@dataclass(frozen=True, slots=True)
class DoctorChecks:
    database: Database
    capacity: Capacity
    # Ids of the keys that secrets may be encrypted with; None: they are not known here.
    key_ids: Sequence[str] | None = None

    async def examine(self, *, repair: bool) -> list[Finding]:
        return [
            await self._flow_counts(repair=repair),
            await self._nodes_without_run(repair=repair),
            await self._flows_without_run(),
            await self._keys_with_room(repair=repair),
            await self._idle_schedules(repair=repair),
            await self._events_unmatched(repair=repair),
            *await self._secrets(),
            await self._logs(repair=repair),
            await self._deliveries(repair=repair),
            await self._forgotten_runs(repair=repair),
        ]

    async def _flow_counts(self, *, repair: bool) -> Finding:
        async with self.database.transaction() as connection:
            wrong = await dangling_rows_store.wrong_runs(connection, BATCH)
            if wrong and repair:
                locked = [one.id for one in wrong]
                await dangling_rows_store.lock_runs(connection, locked)
                # Looked at again: whoever was advancing them has committed.
                wrong = await dangling_rows_store.wrong_runs(connection, BATCH, locked)
                await dangling_rows_store.correct_runs(connection, wrong)
                for one in wrong:
                    await flow_transitions.request_advance(connection, one.id, one.namespace_id)
        told = [f"{one.id} says {one.nodes_open}, {one.counted} are open" for one in wrong]
        return Finding(
            "flow_counts",
            sentence("Runs of flows count other nodes than they have", told),
            len(wrong),
            repair * len(wrong),
        )

    async def _nodes_without_run(self, *, repair: bool) -> Finding:
        async with self.database.transaction() as connection:
            found = await dangling_rows_store.nodes_without_run(connection, BATCH)
            if found and repair:
                await dangling_rows_store.drop_nodes(connection, found)
        return Finding(
            "nodes_without_run",
            sentence("Nodes of flows have no run", found),
            len(found),
            repair * len(found),
        )

    async def _flows_without_run(self) -> Finding:
        async with self.database.transaction() as connection:
            found = await dangling_rows_store.flows_without_run(connection, BATCH)
        told = sentence("Flows are running without a run, so cancel their tasks", found)
        return Finding("flows_without_run", told, len(found))

    async def _keys_with_room(self, *, repair: bool) -> Finding:
        async with self.database.transaction() as connection:
            found = await dangling_rows_store.keys_with_room(connection, BATCH)
            repaired = await self.capacity.repair(connection, found) if found and repair else 0
        told = sentence("Work is held by keys that have room", [one.name for one in found])
        return Finding("held_by_free_keys", told, len(found), repaired)

    async def _idle_schedules(self, *, repair: bool) -> Finding:
        repaired = 0
        async with self.database.transaction() as connection:
            found = await dangling_rows_store.idle_schedules(connection, BATCH)
            if found and repair:
                await decide_for(connection, found)
                left = await dangling_rows_store.idle_schedules(connection, BATCH)
                repaired = len(set(found) - set(left))
        told = sentence("Fires wait for each other in schedules with none under way", found)
        return Finding("held_by_nothing", told, len(found), repaired)

    async def _events_unmatched(self, *, repair: bool) -> Finding:
        async with self.database.transaction() as connection:
            found = await dangling_rows_store.events_unmatched(connection, BATCH)
            gone = await dangling_rows_store.drop_todo(connection, found) if found and repair else 0
        told = sentence("Events wait to be matched for minutes, or are gone; is a server running?", found)
        return Finding("events_unmatched", told, len(found), gone)

    async def _secrets(self) -> list[Finding]:
        async with self.database.transaction() as connection:
            empty = await dangling_rows_store.secrets_without_value(connection, BATCH)
            closed = (
                []
                if self.key_ids is None
                else await dangling_rows_store.secrets_unreadable(connection, self.key_ids, BATCH)
            )
        return [
            Finding(
                "secrets_without_value", sentence("Secrets have no value, so set them", empty), len(empty)
            ),
            Finding(
                "secrets_unreadable",
                sentence("Secrets are encrypted with a key that is not in server.secret_keyring", closed),
                len(closed),
            ),
        ]

    async def _logs(self, *, repair: bool) -> Finding:
        async with self.database.transaction() as connection:
            now = await database_time(connection)
            since, until = ids.first_id_at(now - _LATELY), ids.first_id_at(now - _SETTLED)
            found = await dangling_rows_store.logs_without_instance(connection, since, until, BATCH)
            if found and repair:
                await dangling_rows_store.drop_logs(connection, found)
        told = sentence("Logs belong to instances that do not exist", found)
        return Finding("logs_without_instance", told, len(found), repair * len(found))

    async def _deliveries(self, *, repair: bool) -> Finding:
        async with self.database.transaction() as connection:
            found = await dangling_rows_store.deliveries_without_task(connection, BATCH)
            if found and repair:
                await dangling_rows_store.drop_deliveries(connection, found)
        told = sentence("Messages of webhooks wait that tell of tasks that do not exist", found)
        return Finding("deliveries_without_task", told, len(found), repair * len(found))

    async def _forgotten_runs(self, *, repair: bool) -> Finding:
        async with self.database.transaction() as connection:
            found = await dangling_rows_store.runs_forgotten(connection, BATCH)
            if found and repair:
                await dangling_rows_store.drop_keys(connection, found)
        told = sentence("Idempotency keys stand for tasks that do not exist", [one.key for one in found])
        return Finding("keys_without_task", told, len(found), repair * len(found))
