"""A daemon on the tables themselves: its owner's loop, agents that are only rows, and instances they run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self
from uuid import UUID, uuid4

from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.ownership import Ownership
from hetuflow_server.daemons import transitions as daemon_transitions
from hetuflow_server.daemons.reconciler import DaemonReconciler
from hetuflow_server.daemons.transitions import ReadinessNote
from hetuflow_server.queue.finish import FinishResult
from hetuflow_server.queue.rows import Ending
from tests.support.queue.engine import Engine, owning

_ADD_AGENT = """
INSERT INTO sched_agent (id, name, status, session_id, labels, capabilities, slots, version, registered_at,
                         last_seen_at)
VALUES (%s, %s, 'online', %s, %s, %s, 10, 'test', now(), now())"""

_SLOTS = """
SELECT d.*, i.id AS instance_id, i.status, i.held_reason, i.target_agent_id AS target, i.agent_id AS agent,
       i.cancel_requested, i.due_at, i.job_version, i.token, i.attempt
FROM sched_daemon_slot d
LEFT JOIN sched_task_instance i ON i.schedule_id = d.schedule_id AND i.slot = d.slot
JOIN sched_schedule s ON s.id = d.schedule_id
WHERE s.name = %s ORDER BY d.slot"""

_CLAIM = """
UPDATE sched_task_instance
SET status = 'running', token = gen_random_uuid(), claim_no = claim_no + 1, agent_id = %s, session_id = %s,
    started_at = now(), lease_until = now() + interval '1 hour', due_at = least(due_at, now())
WHERE id = %s AND status = 'pending' RETURNING id, token"""


@dataclass
class Kept:
    """The daemon `up` of the job `job`, and whoever keeps it running."""

    engine: Engine
    keeper: DaemonReconciler
    namespace_id: int
    ownership: Ownership

    @classmethod
    async def of(cls, engine: Engine) -> Self:
        ownership = await owning(engine)
        keeper = DaemonReconciler(
            engine.database,
            ownership,
            engine.finisher,
            engine.task_end_parts.daemon_slots,
            engine.hints,
            engine.clock,
            rest=0.0,
        )
        return cls(engine, keeper, next(iter(ownership.owned)), ownership)

    async def set(self, daemon: Mapping[str, Any], **spec: Any) -> None:
        """Apply the job with this daemon, and do what follows from it."""
        await self.engine.apply({"name": "up", "daemon": dict(daemon)}, **spec)
        await self.settle()

    async def look(self) -> int:
        """One round, as the loop makes it: what is not found by the look is not done either."""
        found = await self.keeper.look([self.namespace_id])
        return sum([await self.keeper.run_once(one) for one in found])

    async def settle(self) -> None:
        """Look until there is nothing to do."""
        for _ in range(50):
            if not await self.look():
                assert await self.keeper.look([self.namespace_id]) == [], (
                    "a look that finds, and does nothing"
                )
                return
        raise AssertionError("the daemon never comes to rest")

    def agent(self, name: str, *, namespaces: tuple[str, ...] = ("default",), **labels: str) -> UUID:
        id_ = uuid4()
        capabilities = json.dumps({"namespaces": list(namespaces)})
        self.engine.rows.execute(_ADD_AGENT, (id_, name, uuid4(), json.dumps(labels), capabilities))
        return id_

    def decide_about(self, agent: UUID, **columns: Any) -> None:
        changes = ", ".join(f"{name} = %s" for name in columns)
        self.engine.rows.execute(
            f"UPDATE sched_agent SET {changes} WHERE id = %s", [*columns.values(), agent]
        )

    def slots(self) -> list[dict[str, Any]]:
        return self.engine.all(_SLOTS, "up")

    def slot(self, number: int) -> dict[str, Any]:
        return next(slot for slot in self.slots() if slot["slot"] == number)

    def statuses(self) -> list[str | None]:
        """Of the live instance in each slot, in the order of their numbers."""
        return [slot["status"] for slot in self.slots()]

    def run(self, number: int, agent: UUID | None = None) -> Ending:
        """Let an agent run what waits in a slot: the one it is offered to, unless another is named."""
        slot = self.slot(number)
        taker = agent or slot["target"] or uuid4()
        row = self.engine.one(_CLAIM, taker, uuid4(), slot["instance_id"])
        return Ending(row["id"], row["token"], InstanceStatus.SUCCEEDED)

    def run_all(self) -> None:
        for slot in self.slots():
            if slot["status"] == "pending":
                self.run(slot["slot"])

    async def end(
        self, number: int, status: InstanceStatus = InstanceStatus.FAILED, *, after: float = 0.0, **said: Any
    ) -> FinishResult:
        """Let what runs in a slot end, so many seconds after it began."""
        slot = self.slot(number)
        self.engine.rows.execute(
            "UPDATE sched_task_instance SET started_at = now() - make_interval(secs => %s) WHERE id = %s",
            (after, slot["instance_id"]),
        )
        ending = Ending(slot["instance_id"], slot["token"], status, **said)
        return await self.engine.settle(ending)

    async def say_ready(self, *numbers: int, ready: bool = True, token: UUID | None = None) -> set[int]:
        """Let agents tell what the readiness probes of these slots say."""
        slots = [self.slot(number) for number in numbers]
        notes = [ReadinessNote(slot["instance_id"], token or slot["token"], ready) for slot in slots]
        async with self.engine.database.transaction() as connection:
            return await daemon_transitions.note_readiness(connection, notes)

    async def obey(self) -> list[int]:
        """Let agents end what they are asked to; return the slots."""
        asked = [slot for slot in self.slots() if slot["cancel_requested"]]
        for slot in asked:
            await self.end(slot["slot"], InstanceStatus.CANCELLED)
        return [slot["slot"] for slot in asked]
