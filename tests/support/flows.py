"""Flows on one database without a server: tests end nodes, and do the errands a server would do."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
from msgspec import structs

from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.states import InstanceStatus
from hetuflow_server.flows.follow_ups import FlowFollowUps
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.queue.capacity import Capacity
from tests.support.queue.engine import WHO, Engine


class Flows:
    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.follow_ups = FlowFollowUps(
            engine.database,
            engine.hints,
            engine.versions,
            engine.task_end_parts.flow_advance,
            engine.finisher,
            Capacity(PlacementClasses()),
        )

    async def apply(
        self, *nodes: dict[str, Any], name: str = "flow", on_failure: str = "abort", **job: Any
    ) -> UUID:
        document = {
            "kind": "job",
            "name": name,
            "flow": {"nodes": list(nodes), "on_failure": on_failure},
            **job,
        }
        await self.engine.applying.apply(WHO, [document], dry_run=False)
        return self.engine.one("SELECT id FROM sched_job WHERE name = %s", name)["id"]

    async def run(self, job_id: UUID, **params: Any) -> UUID:
        """Run a flow; its first nodes have begun then."""
        (task_id,) = await self.engine.actions.run(WHO, job_id, [RunRequest(params=params)])
        await self.follow_ups.run_once()
        return task_id

    async def start(self, *nodes: dict[str, Any], on_failure: str = "abort", **job: Any) -> UUID:
        return await self.run(await self.apply(*nodes, on_failure=on_failure, **job))

    async def end(
        self,
        run: UUID,
        *nodes: str,
        status: InstanceStatus = InstanceStatus.SUCCEEDED,
        output: Any = None,
        index: int | None = None,
    ) -> None:
        """Let somebody run what waits of these nodes, and end it like this; all in one transaction."""
        rows = self.engine.all(
            "SELECT i.id FROM sched_task_instance i JOIN sched_task t ON t.id = i.task_id "
            "WHERE i.flow_run_id = %s AND t.flow_node = ANY(%s) AND i.status = 'pending' "
            "AND (%s::integer IS NULL OR t.map_index = %s) ORDER BY t.map_index",
            run,
            list(nodes),
            index,
            index,
        )
        assert rows, f"nothing of {nodes} can be claimed"
        told = None if output is None else msgspec.json.encode(output).decode()
        endings = [structs.replace(self.engine.claim(row["id"]), status=status, output=told) for row in rows]
        settled = await self.engine.settle(*endings)
        assert len(settled.ended) == len(endings)
        self.engine.hints.give(settled.hints)
        await self.follow_ups.run_once()

    def nodes(self, run: UUID) -> dict[str, str]:
        rows = self.engine.all("SELECT node, status FROM sched_flow_node WHERE flow_run_id = %s", run)
        return {row["node"]: row["status"] for row in rows}

    def node(self, run: UUID, name: str) -> dict[str, Any]:
        return self.engine.one(
            "SELECT * FROM sched_flow_node WHERE flow_run_id = %s AND node = %s", run, name
        )

    def status(self, run: UUID) -> str:
        status: str = self.engine.one("SELECT status FROM sched_flow_run WHERE id = %s", run)["status"]
        return status

    def task(self, run: UUID, node: str, index: int = -1) -> dict[str, Any]:
        return self.engine.one(
            "SELECT * FROM sched_task WHERE flow_run_id = %s AND flow_node = %s AND map_index = %s",
            run,
            node,
            index,
        )

    def live(self, run: UUID) -> list[str]:
        """The nodes with instances in the queue, one for each."""
        rows = self.engine.all(
            "SELECT t.flow_node FROM sched_task_instance i JOIN sched_task t ON t.id = i.task_id "
            "WHERE i.flow_run_id = %s ORDER BY t.flow_node, t.map_index",
            run,
        )
        return [row["flow_node"] for row in rows]


def work(name: str, *needs: str, **keys: Any) -> dict[str, Any]:
    return {"name": name, "needs": list(needs), "run": {"command": ["true"]}, **keys}
