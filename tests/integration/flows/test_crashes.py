"""A server that dies at any statement leaves a run that whoever comes next completes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from uuid import UUID

import pytest

from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.runtime.timers import Timers
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.ownership import Ownership
from hetuflow_server.flows.repair import FlowRepair
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.queue.rows import Ending
from tests.support.flows import Flows, work
from tests.support.queue.engine import WHO, Engine, owning


class Killed(Exception):
    pass


@contextmanager
def dying_at(statement: int) -> Iterator[None]:
    """Let the server die at its n-th statement: what it had not committed has not happened."""
    original, count = Connection.execute, 0

    async def counted(self: Connection, *arguments: Any, **options: Any) -> Any:
        nonlocal count
        count += 1
        if count >= statement:
            raise Killed
        return await original(self, *arguments, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Connection, "execute", counted)
        yield


async def serve(engine: Engine, run: UUID) -> None:
    """What a server does next: begin the run, or end what an agent holds and go on with what follows."""
    flows = Flows(engine)  # nothing is remembered from the one that died
    held = engine.all(
        "SELECT id, token FROM sched_task_instance WHERE status = 'running' AND token IS NOT NULL LIMIT 1"
    )
    if held:
        ending = Ending(held[0]["id"], held[0]["token"], InstanceStatus.SUCCEEDED)
        settled = await engine.settle(ending)
        engine.hints.give(settled.hints)
        await flows.follow_ups.run_once()
    else:
        await flows.follow_ups.go_on(run)


def claim(engine: Engine) -> None:
    """An agent takes the first thing that waits, and says how it ended until it is heard."""
    if engine.all("SELECT FROM sched_task_instance WHERE status = 'running' AND token IS NOT NULL"):
        return
    for row in engine.all("SELECT id FROM sched_task_instance WHERE status = 'pending' ORDER BY id LIMIT 1"):
        engine.claim(row["id"])


async def repaired(engine: Engine, ownership: Ownership) -> int:
    """Look as the owner does after everybody has been away for a while; return what was left undone."""
    follow_ups = Flows(engine).follow_ups
    repair = FlowRepair(
        engine.database,
        ownership,
        engine.task_end_parts.flow_advance,
        follow_ups,
        engine.hints,
        Timers(engine.clock),
    )
    engine.rows.execute("UPDATE sched_flow_advance SET requested_at = now() - interval '1 hour'")
    namespaces = [row["id"] for row in engine.all("SELECT id FROM sched_namespace")]
    while sum([await repair.run_once(one) for one in await repair.look(namespaces)]):
        pass
    return repair.repaired


def is_over(engine: Engine, run: UUID) -> bool:
    task = engine.one("SELECT finished_at FROM sched_task WHERE id = %s", run)
    return task["finished_at"] is not None


async def test_a_server_may_die_at_any_statement(scheduling: Engine) -> None:
    ownership, flows = await owning(scheduling), Flows(scheduling)
    await flows.apply(work("x"), name="inner")
    job = await flows.apply(
        work("a"),
        work("each", "a", map=[1, 2]),
        {"name": "sub", "flow": "inner", "needs": ["a"]},
        work("join", "each", "sub"),
    )
    statement, left_undone, died = 1, 0, True
    while died:
        died = False
        (run,) = await scheduling.actions.run(WHO, job, [RunRequest()])
        while not is_over(scheduling, run):
            claim(scheduling)
            try:
                with dying_at(statement):
                    await serve(scheduling, run)
            except Killed:
                died = True
                left_undone += await repaired(scheduling, ownership)
                if not is_over(scheduling, run):
                    await serve(scheduling, run)  # the agent says it again, to one that lives
        left = await repaired(scheduling, ownership)
        assert died or not left, "something was left undone although nobody died"
        assert flows.status(run) == "succeeded", f"killed at statement {statement}"
        assert set(flows.nodes(run).values()) == {"succeeded"}
        tasks = scheduling.all("SELECT flow_node, attempts FROM sched_task WHERE flow_run_id = %s", run)
        assert sorted(row["flow_node"] for row in tasks) == ["a", "each", "each", "join", "sub"]
        assert {row["attempts"] for row in tasks} == {1}
        assert scheduling.all("SELECT * FROM sched_task_instance") == []
        assert scheduling.all("SELECT * FROM sched_flow_advance") == []
        statement += 1
    assert statement > 20, "it never came far enough to die at most statements"
    assert left_undone, "no death left anything for others to do"
