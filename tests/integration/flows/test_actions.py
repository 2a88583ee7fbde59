"""People and the clock have their say in runs: approvals, skips, repeats, waits, timeouts; and repair."""

from __future__ import annotations

import secrets
from datetime import timedelta
from uuid import UUID, uuid4

import pytest

from hetuflow_core import ids
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Conflict, Denied, NotFound
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.runtime.timers import Timers
from hetuflow_core.states import InstanceStatus
from hetuflow_server.flows.actions import FlowActions, NodeAction
from hetuflow_server.flows.repair import FlowRepair
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from tests.support.flows import Flows, work
from tests.support.queue.engine import WHO, Engine, owning

FAILED = InstanceStatus.FAILED
EVE = RequestContext.internal(Principal.with_role("eve", Role.VIEWER))


class Desk:
    """Where people decide about runs, and the owner's loop."""

    def __init__(self, engine: Engine, repair: FlowRepair) -> None:
        self.engine, self.flows, self.repair = engine, Flows(engine), repair
        self.control = FlowActions(
            engine.database, engine.hints, engine.task_end_parts.flow_advance, engine.finisher, engine.actions
        )

    async def look(self) -> int:
        """Look as the owner's loop does."""
        namespaces = [row["id"] for row in self.engine.all("SELECT id FROM sched_namespace")]
        return sum([await self.repair.run_once(one) for one in await self.repair.look(namespaces)])


@pytest.fixture
async def desk(scheduling: Engine) -> Desk:
    flows = Flows(scheduling)
    repair = FlowRepair(
        scheduling.database,
        await owning(scheduling),
        scheduling.task_end_parts.flow_advance,
        flows.follow_ups,
        scheduling.hints,
        Timers(scheduling.clock),
    )
    made = Desk(scheduling, repair)
    made.flows = flows
    return made


def approval(name: str, *needs: str, **keys: object) -> dict[str, object]:
    return {"name": name, "needs": list(needs), "approval": keys}


async def test_an_approval_is_for_those_it_names(desk: Desk) -> None:
    run = await desk.flows.start(approval("ask", approvers=["eve", "role:admin"]), work("go", "ask"))
    bob = RequestContext.internal(Principal.with_role("bob", Role.OPERATOR))
    with pytest.raises(Denied, match="eve, role:admin"):
        await desk.control.decide(bob, run, "ask", NodeAction.APPROVE, None)
    with pytest.raises(Conflict, match="needs no approval"):
        await desk.control.decide(WHO, run, "go", NodeAction.APPROVE, None)
    with pytest.raises(NotFound):
        await desk.control.decide(WHO, run, "nobody", NodeAction.APPROVE, None)
    shown = await desk.control.decide(EVE, run, "ask", NodeAction.APPROVE, "Fine.")
    ask, go = shown.nodes
    assert (ask.status, ask.decided_by, ask.comment, ask.reason) == ("succeeded", "eve", "Fine.", "approved")
    assert (go.status, go.layer) == ("running", 1)
    with pytest.raises(Conflict, match="ended already"):
        await desk.control.decide(EVE, run, "ask", NodeAction.REJECT, None)


async def test_a_rejection_fails_the_node_and_so_the_run(desk: Desk) -> None:
    run = await desk.flows.start(approval("ask"), work("go", "ask"))
    with pytest.raises(Denied):
        await desk.control.decide(EVE, run, "ask", NodeAction.REJECT, None)
    await desk.control.decide(WHO, run, "ask", NodeAction.REJECT, "No.")
    await desk.flows.follow_ups.run_once()
    assert desk.flows.nodes(run) == {"ask": "failed", "go": "cancelled"}
    assert desk.flows.status(run) == "failed"


async def test_what_runs_of_a_skipped_node_is_cancelled(desk: Desk) -> None:
    run = await desk.flows.start(
        work("a"), work("b", "a"), work("c", "b", trigger="none_failed"), work("d", "a")
    )
    await desk.control.decide(WHO, run, "b", NodeAction.SKIP, None)
    assert desk.flows.nodes(run)["c"] == "running"
    shown = await desk.control.decide(WHO, run, "a", NodeAction.MARK_SUCCESS, "Was done by hand.")
    assert {node.name: node.status for node in shown.nodes} == {
        "a": "succeeded",
        "b": "skipped",
        "c": "running",
        "d": "running",
    }
    assert desk.flows.live(run) == ["c", "d"]
    assert desk.flows.task(run, "a")["status"] == "cancelled"


async def test_a_run_is_repeated_from_what_failed(desk: Desk) -> None:
    run = await desk.flows.start(
        work("a"),
        work("each", "a", map=["x", "y", "z"]),
        work("side"),
        work("last", "each", "side", params={"all": "{{ nodes.each.output }}"}),
        on_failure="continue",
    )
    await desk.flows.end(run, "a", "side", output={"k": 1})
    await desk.flows.end(run, "each", index=0, output={"i": 0})
    await desk.flows.end(run, "each", index=2, output={"i": 2})
    with pytest.raises(Conflict):
        await desk.control.retry(WHO, run, whole=False)
    await desk.flows.end(run, "each", index=1, status=FAILED)
    assert desk.flows.status(run) == "failed"
    again = (await desk.control.retry(WHO, run, whole=False)).id
    await desk.flows.follow_ups.run_once()
    assert desk.flows.nodes(again) == {
        "a": "succeeded",
        "each": "running",
        "side": "succeeded",
        "last": "waiting",
    }
    assert desk.flows.node(again, "a")["reason"] == "reused"
    assert [
        row["map_index"]
        for row in desk.engine.all("SELECT map_index FROM sched_task WHERE flow_run_id = %s", again)
    ] == [1]
    await desk.flows.end(again, "each", output={"i": 1})
    assert desk.flows.task(again, "last")["params"]["all"] == [{"i": 0}, {"i": 1}, {"i": 2}]
    await desk.flows.end(again, "last")
    assert desk.flows.status(again) == "succeeded"
    with pytest.raises(Conflict, match="as a whole"):
        await desk.control.retry(WHO, again, whole=False)
    whole = (await desk.control.retry(WHO, again, whole=True)).id
    await desk.flows.follow_ups.run_once()
    assert desk.flows.nodes(whole)["a"] == "running"


async def test_waits_end_on_time_and_approvals_when_nobody_answers(desk: Desk) -> None:
    run = await desk.flows.start(
        {"name": "wait", "wait_until": "1h"},
        approval("ask", timeout="1h") | {"on_failure": "continue"},
        work("after", "wait"),
        {"name": "past", "wait_until": "2020-01-01T00:00:00Z"},
    )
    assert desk.flows.nodes(run) == {
        "wait": "running",
        "ask": "running",
        "after": "waiting",
        "past": "succeeded",
    }
    assert await desk.look() == 0
    desk.engine.rows.execute("UPDATE sched_flow_node SET wake_at = now() WHERE status = 'running'")
    assert await desk.look() == 2
    assert desk.flows.nodes(run) == {
        "wait": "succeeded",
        "ask": "failed",
        "after": "running",
        "past": "succeeded",
    }
    assert desk.flows.node(run, "ask")["reason"] == "timeout"


async def test_a_run_ends_at_its_timeout(desk: Desk) -> None:
    run = await desk.flows.start(work("a"), work("b", "a"), timeout="1h")
    desk.engine.rows.execute("UPDATE sched_flow_run SET deadline_at = now()")
    assert await desk.look() == 1
    await desk.flows.follow_ups.run_once()
    assert desk.flows.status(run) == "failed"
    assert (await desk.engine.task(run)).reason == "timeout"
    assert desk.flows.live(run) == []


async def test_a_flow_due_later_begins_when_it_is_due(desk: Desk) -> None:
    job = await desk.flows.apply(work("a"))
    later = desk.engine.now() + timedelta(hours=1)
    (task,) = await desk.engine.actions.run(WHO, job, [RunRequest(run_at=later)])
    await desk.flows.follow_ups.run_once()
    assert await desk.look() == 0
    desk.engine.rows.execute("UPDATE sched_task SET fire_at = now(), due_at = now() WHERE id = %s", [task])
    desk.engine.rows.execute("UPDATE sched_task_instance SET due_at = now() WHERE task_id = %s", [task])
    assert await desk.look() == 1
    assert desk.flows.nodes(task) == {"a": "running"}


async def test_what_a_server_left_undone_is_gone_on_with(desk: Desk) -> None:
    """The server dies right after the transaction that ended the last node."""
    run = await desk.flows.start(work("each", map=list(range(600))))
    ids = [
        row["id"] for row in desk.engine.all("SELECT id FROM sched_task_instance WHERE flow_run_id = %s", run)
    ]
    await desk.engine.settle(
        *[desk.engine.claim(id_) for id_ in ids]
    )  # no hints: nobody is there to hear them
    assert desk.flows.status(run) == "running"
    assert await desk.look() == 0  # its server may be at it
    desk.engine.rows.execute("UPDATE sched_flow_advance SET requested_at = now() - interval '1 minute'")
    assert await desk.look() == 1
    assert desk.flows.status(run) == "succeeded"
    assert (await desk.engine.task(run)).status == "succeeded"
    assert desk.repair.repaired == 1


async def test_an_event_ends_the_wait_for_it(desk: Desk) -> None:
    def emit(size: int, name: str = "file.uploaded") -> None:
        desk.engine.rows.execute(
            "INSERT INTO sched_event (id, namespace_id, name, payload, source) "
            "SELECT %s, id, %s, jsonb_build_object('size', %s::integer), 'test' FROM sched_namespace "
            "WHERE name = 'default'",
            [ids.new_id(desk.engine.now(), secrets.token_bytes(10)), name, size],
        )

    emit(5_000)  # before anybody waited
    run = await desk.flows.start(
        {"name": "wait", "wait_for_event": {"name": "file.uploaded", "filter": "payload.size > 1000"}},
        work("load", "wait", params={"size": "{{ nodes.wait.output.payload.size }}"}),
    )
    assert await desk.look() == 0
    emit(10)
    emit(9_000, name="file.removed")
    assert await desk.look() == 0
    emit(2_000)
    assert await desk.look() == 1
    assert desk.flows.nodes(run) == {"wait": "succeeded", "load": "running"}
    assert desk.flows.task(run, "load")["params"] == {"size": 2_000}


def hosts(engine: Engine, count: int) -> list[UUID]:
    """Agents of the role web, beside one that is not and one that takes no work."""
    made = []
    for number, (role, status) in enumerate(
        [("web", "online")] * count + [("db", "online"), ("web", "draining")]
    ):
        id_ = uuid4()
        engine.rows.execute(
            "INSERT INTO sched_agent (id, name, status, session_id, labels, capabilities, registered_at) "
            "VALUES (%s, %s, %s, gen_random_uuid(), jsonb_build_object('role', %s::text), "
            """'{"namespaces": ["default"]}', now())""",
            [id_, f"host-{number:02}", status, role],
        )
        made.append(id_)
    return made[:count]


async def test_a_fleet_goes_in_waves_and_only_failed_hosts_are_repeated(desk: Desk) -> None:
    agents = hosts(desk.engine, 5)
    run = await desk.flows.start(
        work(
            "patch",
            placement={"labels": {"role": "web"}},
            fleet={"waves": [1, "100%"], "max_unavailable": 3, "quorum": "60%"},
            run={"command": ["patch", "{{ item }}"]},
        )
    )

    def targets(of: UUID) -> list[UUID]:
        rows = desk.engine.all(
            "SELECT target_agent_id FROM sched_task_instance WHERE flow_run_id = %s ORDER BY id", of
        )
        return [row["target_agent_id"] for row in rows]

    assert targets(run) == agents[:1]
    assert desk.flows.task(run, "patch", 0)["flow_context"]["item"] == "host-00"
    await desk.flows.end(run, "patch", index=0)
    assert sorted(targets(run)) == sorted(agents[1:4])
    await desk.flows.end(run, "patch", index=1, status=FAILED)
    await desk.flows.end(run, "patch", index=2, status=FAILED)
    assert len(targets(run)) == 2
    await desk.flows.end(run, "patch", index=4, status=FAILED)
    # Three of five have failed: what runs may end, and the node has failed.
    await desk.flows.end(run, "patch", index=3)
    assert (desk.flows.nodes(run), desk.flows.status(run)) == ({"patch": "failed"}, "failed")
    again = (await desk.control.retry(WHO, run, whole=False)).id
    await desk.flows.follow_ups.run_once()
    assert sorted(targets(again)) == sorted([agents[1], agents[2], agents[4]])
    await desk.flows.end(again, "patch")
    assert desk.flows.status(again) == "succeeded"


async def test_a_fleet_without_hosts_fails(desk: Desk) -> None:
    run = await desk.flows.start(work("patch", placement={"labels": {"role": "none"}}, fleet={}))
    assert desk.flows.node(run, "patch")["reason"] == "no_agent"
    assert desk.flows.status(run) == "failed"
