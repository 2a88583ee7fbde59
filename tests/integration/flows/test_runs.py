"""Runs of flows in the database: they begin, advance with the end of each node, and end."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from msgspec import structs

from hetuflow_core import ids
from hetuflow_core.errors import Conflict, Invalid
from hetuflow_core.states import InstanceStatus
from hetuflow_server.queue import transitions
from hetuflow_server.queue.finish import FinishResult
from hetuflow_server.queue.rows import Ending
from tests.support.flows import Flows, work
from tests.support.queue.engine import WHO, Engine

FAILED = InstanceStatus.FAILED


@pytest.fixture
def flows(scheduling: Engine) -> Flows:
    return Flows(scheduling)


async def test_a_chain_advances_with_the_end_of_each_node(flows: Flows) -> None:
    run = await flows.start(work("a"), work("b", "a"), work("c", "b"))
    assert flows.nodes(run) == {"a": "running", "b": "waiting", "c": "waiting"}
    own = flows.engine.one(
        "SELECT status, lease_until, agent_id FROM sched_task_instance WHERE task_id = %s", run
    )
    assert (own["status"], own["lease_until"], own["agent_id"]) == ("running", None, None)
    for node in ("a", "b", "c"):
        assert flows.live(run) == [node]
        await flows.end(run, node)
    assert flows.nodes(run) == dict.fromkeys("abc", "succeeded")
    assert flows.status(run) == "succeeded"
    task = await flows.engine.task(run)
    assert (task.status, task.instances[0].status) == ("succeeded", "succeeded")
    assert flows.engine.all("SELECT * FROM sched_flow_advance") == []
    assert flows.engine.all("SELECT * FROM sched_task_instance") == []


async def test_what_stands_for_a_run_does_not_end_before_it(flows: Flows) -> None:
    run = await flows.start(work("a"))
    async with flows.engine.database.transaction() as connection:
        ending = Ending(ids.instance_of(run, 1), None, InstanceStatus.SUCCEEDED)
        assert await transitions.finish_flow(connection, [ending]) == []


async def test_the_next_node_is_there_when_the_one_before_has_ended(flows: Flows) -> None:
    """In the same transaction: no errand is needed for it."""
    run = await flows.start(work("a"), work("b", "a"))
    (row,) = flows.engine.all("SELECT id FROM sched_task_instance WHERE flow_run_id = %s", run)
    await flows.engine.settle(flows.engine.claim(row["id"]))
    assert flows.live(run) == ["b"]


async def test_outputs_reach_what_comes_behind(flows: Flows) -> None:
    run = await flows.start(
        work("a"),
        work("b", "a", run={"command": ["echo", "{{ nodes.a.output.file }}", "{{ params.who }}"]}),
        params={"who": "world"},
    )
    await flows.end(run, "a", output={"file": "x.csv", "other": "y" * 100})
    task = flows.task(run, "b")
    # Only what it refers to is kept with it.
    assert task["flow_context"]["nodes"]["a"]["output"] == {"file": "x.csv"}
    version = await flows.engine.versions.find(
        flows.engine.database, task["job_id"], task["job_version"], "b"
    )
    rendered = version.render(
        task["params"], task_id=task["id"], attempt=1, fire_at=task["fire_at"], seen=task["flow_context"]
    )
    assert rendered.command == ["echo", "x.csv", "world"]


async def test_a_failure_aborts_and_leaves_nothing_running(flows: Flows) -> None:
    run = await flows.start(work("a"), work("b"), work("c", "a"), work("d", "c"))
    held = flows.engine.claim(
        flows.engine.one(
            "SELECT i.id FROM sched_task_instance i JOIN sched_task t ON t.id = i.task_id "
            "WHERE t.flow_node = 'b'"
        )["id"]
    )
    await flows.end(run, "a", status=FAILED)
    # What runs is asked to end; the run waits for that.
    assert flows.nodes(run) == {"a": "failed", "b": "running", "c": "cancelled", "d": "cancelled"}
    assert flows.status(run) == "running"
    assert flows.engine.one(
        "SELECT cancel_requested AS c FROM sched_task_instance WHERE id = %s", held.instance_id
    )["c"]
    settled = await flows.engine.settle(held)
    flows.engine.hints.give(settled.hints)
    await flows.follow_ups.run_once()
    assert flows.nodes(run)["b"] in {"succeeded", "cancelled"}
    assert flows.status(run) == "failed"
    assert (await flows.engine.task(run)).status == "failed"
    assert flows.engine.all("SELECT * FROM sched_task_instance") == []


async def test_a_flow_that_continues_lets_the_rules_decide(flows: Flows) -> None:
    run = await flows.start(
        work("a"),
        work("b", "a"),
        work("mourn", "a", trigger="any_failed"),
        work("clean", "b", "mourn", trigger="all_done"),
        on_failure="continue",
    )
    await flows.end(run, "a", status=FAILED)
    assert flows.nodes(run) == {"a": "failed", "b": "skipped", "mourn": "running", "clean": "waiting"}
    await flows.end(run, "mourn")
    await flows.end(run, "clean")
    assert flows.status(run) == "failed"


async def test_conditions_decide_and_skips_go_on(flows: Flows) -> None:
    run = await flows.start(
        work("a"),
        work("b", "a", when="nodes.a.output.n > 3"),
        work("c", "b"),
        work("d", "c", trigger="none_failed"),
        work("e", "a", when="nodes.a.output.missing > 3", on_failure="continue"),
    )
    await flows.end(run, "a", output={"n": 3})
    assert flows.nodes(run) == {
        "a": "succeeded",
        "b": "skipped",
        "c": "skipped",
        "d": "running",
        "e": "failed",
    }
    assert flows.node(run, "b")["reason"] == "when"
    assert flows.node(run, "c")["reason"] == "upstream"
    assert flows.node(run, "e")["reason"] == "condition_error"


async def test_a_failed_node_is_tried_again_first(flows: Flows) -> None:
    run = await flows.start(work("a", retry={"max_attempts": 2, "delay": "0s"}), work("b", "a"))
    await flows.end(run, "a", status=FAILED)
    assert flows.nodes(run)["a"] == "running"
    await flows.end(run, "a")
    assert flows.nodes(run) == {"a": "succeeded", "b": "running"}
    assert flows.task(run, "a")["attempts"] == 2


async def test_a_map_runs_each_item_and_joins(flows: Flows) -> None:
    run = await flows.start(
        work("list"),
        work("each", "list", map="{{ nodes.list.output.files }}", run={"command": ["cat", "{{ item }}"]}),
        work("join", "each", params={"all": "{{ nodes.each.output }}", "n": "{{ nodes.each.succeeded }}"}),
    )
    await flows.end(run, "list", output={"files": ["x", "y", "z"]})
    assert flows.live(run) == ["each"] * 3
    task = flows.task(run, "each", 1)
    version = await flows.engine.versions.find(
        flows.engine.database, task["job_id"], task["job_version"], "each"
    )
    rendered = version.render(
        task["params"], task_id=task["id"], attempt=1, fire_at=task["fire_at"], seen=task["flow_context"]
    )
    assert rendered.command == ["cat", "y"]
    assert rendered.env == {"HETUFLOW_SHARD_INDEX": "1", "HETUFLOW_SHARD_TOTAL": "3"}
    for index in (2, 0, 1):
        assert flows.nodes(run)["join"] == "waiting"
        await flows.end(run, "each", index=index, output={"i": index})
    assert flows.task(run, "join")["params"] == {"all": [{"i": 0}, {"i": 1}, {"i": 2}], "n": 3}


async def test_a_map_of_nothing_is_done_and_one_of_no_list_fails(flows: Flows) -> None:
    run = await flows.start(
        work("none", map=[]),
        work("after", "none"),
        work("odd", map="{{ params.odd }}", on_failure="continue"),
    )
    assert flows.nodes(run) == {"none": "succeeded", "after": "running", "odd": "failed"}


async def test_no_more_items_run_at_once_than_allowed(flows: Flows) -> None:
    run = await flows.start(work("each", map={"over": [1, 2, 3, 4, 5], "max_parallel": 2, "quorum": "60%"}))
    assert len(flows.live(run)) == 2
    await flows.end(run, "each", index=0, status=FAILED)
    assert len(flows.live(run)) == 2
    await flows.end(run, "each", index=1)
    await flows.end(run, "each", index=2)
    await flows.end(run, "each", index=3, status=FAILED)
    await flows.end(run, "each", index=4)
    assert flows.status(run) == "succeeded"  # three of five is what was asked for


async def test_a_wide_map_is_made_in_batches(flows: Flows) -> None:
    run = await flows.start(work("each", map=list(range(1_201))), work("join", "each"))
    assert len(flows.live(run)) == 1_201
    await flows.end(run, "each")
    assert flows.live(run) == ["join"]
    node = flows.node(run, "each")
    assert (node["total"], node["started"], node["succeeded"]) == (1_201, 1_201, 1_201)


async def test_a_flow_within_a_flow(flows: Flows) -> None:
    await flows.apply(work("x"), work("y", "x"), name="inner", params={"p": "inner"})
    run = await flows.start(
        {"name": "sub", "flow": "inner", "params": {"p": "outer"}}, work("after", "sub"), name="outer"
    )
    child = flows.task(run, "sub")["id"]
    assert flows.engine.one("SELECT params FROM sched_flow_run WHERE id = %s", child)["params"] == {
        "p": "outer"
    }
    await flows.end(child, "x")
    await flows.end(child, "y", output={"k": 1})
    assert flows.status(child) == "succeeded"
    assert flows.nodes(run) == {"sub": "succeeded", "after": "running"}
    assert flows.node(run, "sub")["output"] == {"y": {"k": 1}}


async def test_cancelling_a_flow_cancels_flows_within_it(flows: Flows) -> None:
    await flows.apply(work("x"), work("y", "x"), name="inner")
    run = await flows.start({"name": "sub", "flow": "inner"}, work("after", "sub"), name="outer")
    child = flows.task(run, "sub")["id"]
    await flows.engine.actions.cancel(WHO, run)
    await flows.follow_ups.run_once()
    assert (flows.status(child), flows.status(run)) == ("cancelled", "cancelled")
    assert flows.nodes(child) == {"x": "cancelled", "y": "cancelled"}
    assert (await flows.engine.task(run)).status == "cancelled"
    assert flows.engine.all("SELECT * FROM sched_task_instance") == []
    assert (await flows.engine.actions.cancel(WHO, run)).status == "cancelled"


async def test_the_end_of_a_flow_within_and_a_cancel_of_its_parent_wait_in_no_ring(flows: Flows) -> None:
    """Each needs the other's run: levels are locked one after the other, and a deadlock would raise."""
    engine = flows.engine
    await flows.apply(work("x"), name="inner")
    outer = await flows.apply({"name": "sub", "flow": "inner"}, work("after", "sub"), name="outer")
    runs = [await flows.run(outer) for _ in range(8)]
    children = [flows.task(run, "sub")["id"] for run in runs]
    pending = engine.all("SELECT id FROM sched_task_instance WHERE flow_run_id = ANY(%s)", children)
    endings = [engine.claim(row["id"]) for row in pending]
    assert len(endings) == len(runs)
    ends = [engine.settle(*endings[:4]), *[engine.settle(one) for one in endings[4:]]]
    cancels = [engine.actions.cancel(WHO, run) for run in runs]
    results = await asyncio.gather(
        *[work for pair in zip(cancels, ends, strict=False) for work in pair],
        *cancels[len(ends) :],
        flows.follow_ups.run_once(),
    )
    assert sum(len(one.ended) for one in results if isinstance(one, FinishResult)) == len(endings)
    await flows.follow_ups.run_once()
    assert {flows.status(run) for run in runs} == {"cancelled"}
    assert {flows.status(child) for child in children} <= {"cancelled", "succeeded"}
    assert engine.all("SELECT id FROM sched_task_instance") == []


async def test_a_flow_calls_a_job_with_its_item(flows: Flows) -> None:
    await flows.engine.apply(name="one", params={"item": None, "deep": True}, run={"command": ["cat"]})
    run = await flows.start({"name": "each", "job": "one", "map": ["p", "q"]})
    task = flows.task(run, "each", 1)
    assert task["params"] == {"item": "q", "deep": True}
    assert task["flow_context"] is None
    await flows.end(run, "each")
    assert flows.status(run) == "succeeded"


async def test_no_more_runs_at_once_than_the_flow_allows(flows: Flows) -> None:
    job = await flows.apply(work("a"), concurrency={"max": 1})
    first, second = await flows.run(job), await flows.run(job)
    assert flows.engine.all("SELECT * FROM sched_flow_run WHERE id = %s", second) == []
    await flows.end(first, "a")
    await flows.follow_ups.go_on(second)
    assert flows.nodes(second) == {"a": "running"}
    assert flows.engine.one("SELECT in_use FROM sched_limit WHERE in_use > 0")["in_use"] == 1
    await flows.end(second, "a")
    assert flows.engine.all("SELECT * FROM sched_limit WHERE in_use > 0") == []


async def test_a_whole_flow_is_run_again(flows: Flows) -> None:
    run = await flows.start(work("a"))
    with pytest.raises(Conflict):
        await flows.engine.actions.repeat(WHO, run)
    await flows.end(run, "a")
    again = await flows.engine.actions.repeat(WHO, run)
    await flows.follow_ups.run_once()
    assert flows.nodes(again.id) == {"a": "running"}


async def test_statuses_of_other_kinds_end_nodes_too(flows: Flows) -> None:
    run = await flows.start(
        work("a", skip_exit_codes=[75]), work("b", "a"), work("c", "a", trigger="none_failed")
    )
    held: Any = flows.engine.claim(
        flows.engine.one("SELECT id FROM sched_task_instance WHERE flow_run_id = %s", run)["id"]
    )
    settled = await flows.engine.settle(structs.replace(held, status=FAILED, exit_code=75))
    assert settled.ended
    assert flows.nodes(run) == {"a": "skipped", "b": "skipped", "c": "running"}


async def test_what_a_flow_calls_has_to_be_there(flows: Flows) -> None:
    await flows.engine.apply(name="report")
    await flows.apply({"name": "back", "job": "report"}, name="inner")
    with pytest.raises(Invalid) as raised:
        await flows.apply(
            {"name": "a", "job": "reprot"},
            {"name": "b", "flow": "report"},
            {"name": "c", "flow": "outer"},
            {"name": "d", "flow": "inner"},
            name="outer",
        )
    assert [str(fault) for fault in raised.value.faults] == [
        'documents[0].flow.nodes[0].job: there is no job "reprot": did you mean "report"?',
        'documents[0].flow.nodes[1].flow: "report" is no flow: write job instead.',
        "documents[0].flow.nodes[2].flow: flows call each other: outer → outer. Remove one.",
    ]
    await flows.apply({"name": "d", "flow": "inner"}, name="outer")
    with pytest.raises(Invalid, match="cannot be accepted") as raised:
        await flows.apply({"name": "back", "flow": "outer"}, name="inner")
    assert "inner → outer → inner" in str(raised.value.faults[0])


async def test_ends_at_once_start_what_joins_them_once(flows: Flows) -> None:
    """Each in a transaction of its own, at the same time: the run's lock puts them in a row."""
    run = await flows.start(
        *(work(f"n{number}") for number in range(4)), work("join", "n0", "n1", "n2", "n3")
    )
    rows = flows.engine.all("SELECT id FROM sched_task_instance WHERE flow_run_id = %s", run)
    endings = [flows.engine.claim(row["id"]) for row in rows]
    settled = await asyncio.gather(*(flows.engine.settle(ending) for ending in endings))
    assert sum(len(one.ended) for one in settled) == 4
    assert flows.live(run) == ["join"]
    assert flows.node(run, "join")["ups_succeeded"] == 4
