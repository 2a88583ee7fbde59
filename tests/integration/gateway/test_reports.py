"""Reports of several at once: each is answered on its own, and only the holder of a claim ends it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from msgspec import convert, structs

from hetuflow_core import ids, messages as m
from hetuflow_core.errors import Invalid
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.hints import instance_topic, namespace_topic
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue import store as queue_store, transitions
from hetuflow_server.queue.claim_transitions import RESERVATION
from hetuflow_server.queue.rows import Ending
from tests.support.agent.report_sink import Desk, end_of, start_of
from tests.support.flows import Flows, work
from tests.support.queue.claiming_engine import DEFAULT, WHO, engine_on
from tests.support.queue.engine import Engine as Scheduling
from tests.support.waiting import wait_until_async, waits_for_lock

OK, STALE, CANCELLED = m.ReportOutcome.OK, m.ReportOutcome.STALE, m.ReportOutcome.CANCELLED
FAILED, SUCCEEDED = InstanceStatus.FAILED, InstanceStatus.SUCCEEDED
AGAIN = {"retry": {"max_attempts": 3, "delay": "10s"}}


@pytest.fixture
async def desk(fresh_database_url: str) -> AsyncIterator[Desk]:
    async with engine_on(fresh_database_url) as engine:
        desk = Desk(engine)
        await desk.fleet.register("a", slots=9)
        yield desk


@pytest.mark.parametrize("right_first", [True, False])
@pytest.mark.parametrize("status", [SUCCEEDED, FAILED])
async def test_of_two_ends_told_together_the_holders_counts_and_the_other_is_late(
    desk: Desk, status: InstanceStatus, *, right_first: bool
) -> None:
    """The former holder of a claim and its holder may well report within the same transaction."""
    one = await desk.claimed(skip_exit_codes=[9], **AGAIN)
    right = end_of(one, status, exit_code=1)
    wrong = m.Finish(one.id, uuid4(), FAILED, exit_code=9)
    told, outcomes = ([right, wrong], [OK, STALE]) if right_first else ([wrong, right], [STALE, OK])
    assert await desk.report(*told) == outcomes
    task = await desk.engine.task(one.task_id)
    assert (task.status, task.exit_code) == ("waiting_retry" if status is FAILED else "succeeded", 1)
    assert [late.exit_code for late in task.late_results] == [9]
    assert await desk.report(*told) == outcomes, "told again, answered again"
    await desk.engine.all_is_well()


@pytest.mark.parametrize("right_first", [True, False])
async def test_of_two_releases_told_together_the_holders_counts_and_the_other_is_stale(
    desk: Desk, *, right_first: bool
) -> None:
    one, other = await desk.claimed(), await desk.claimed()
    right, wrong = m.Release(one.id, one.token), m.Release(one.id, uuid4())
    told = [right, wrong] if right_first else [wrong, right]
    outcomes = [OK, STALE] if right_first else [STALE, OK]
    assert await desk.report(*told, m.Release(other.id, other.token)) == [*outcomes, OK]
    for claim in (one, other):
        (live,) = (await desk.engine.task(claim.task_id)).instances
        assert live.status == "pending"
    assert await desk.report(*told) == [STALE, STALE], "it is nobody's any more"


@pytest.mark.parametrize("status", [SUCCEEDED, FAILED])
async def test_when_it_began_and_ended_is_told_by_its_agent_and_otherwise_when_it_was_heard(
    desk: Desk, status: InstanceStatus
) -> None:
    """A process starts up to a second after its start was committed, and its end may be told much later."""
    told, brief, untold = [await desk.claimed() for _ in range(3)]
    assert await desk.report(start_of(told), start_of(untold)) == [OK, OK]
    began, over = 1_000_000_000_001, 1_000_000_000_500
    ends = [end_of(claim, status, started_at=began, finished_at=over) for claim in (told, brief)]
    assert await desk.report(*ends, end_of(untold, status)) == [OK, OK, OK]
    for claim in (told, brief):
        (ended,) = (await desk.engine.task(claim.task_id)).instances
        assert ended.started_at is not None
        assert ended.finished_at is not None
        assert [ids.milliseconds(ended.started_at), ids.milliseconds(ended.finished_at)] == [began, over]
    (heard,) = (await desk.engine.task(untold.task_id)).instances
    assert heard.started_at is not None
    assert heard.finished_at is not None
    assert began < ids.milliseconds(heard.started_at) <= ids.milliseconds(heard.finished_at)


async def test_an_end_told_twice_at_once_is_one_end(scheduling: Scheduling) -> None:
    """A request whose answer is late comes once more, and may share a transaction with itself."""
    flows = Flows(scheduling)
    run = await flows.start(work("a", map="{{ [1, 2] }}"), work("b", "a"))
    one = scheduling.claim(ids.instance_of(flows.task(run, "a", 0)["id"], 1))
    assert len((await scheduling.settle(one, one)).ended) == 1
    assert flows.nodes(run)["a"] == "running", "one of its two items is still to come"
    await flows.end(run, "a", index=1)
    assert flows.live(run) == ["b"]


async def test_a_node_that_succeeds_is_left_to_whoever_goes_on_with_its_flow(scheduling: Scheduling) -> None:
    """The quick way out locks no run: what waits for the node would never begin."""
    flows = Flows(scheduling)
    run = await flows.start(work("a"), work("b", "a"))
    one = scheduling.claim(ids.instance_of(flows.task(run, "a")["id"], 1))
    async with scheduling.database.transaction() as connection:
        assert (await scheduling.finisher.succeed(connection, [one])).ended == set()
    assert flows.live(run) == ["a"]
    await scheduling.settle(one)
    await flows.follow_ups.run_once()
    assert flows.live(run) == ["b"]


async def test_a_start_told_again_of_what_was_cancelled_meanwhile_begins_nothing(desk: Desk) -> None:
    one, other = await desk.claimed(), await desk.claimed()
    assert await desk.report(start_of(one), start_of(other)) == [OK, OK]
    await desk.engine.actions.cancel(WHO, one.task_id)
    assert await desk.report(start_of(one), start_of(other)) == [CANCELLED, OK]
    assert (await desk.engine.task(one.task_id)).status == "cancelled"
    assert (await desk.engine.task(other.task_id)).status == "running"
    assert await desk.report(start_of(one)) == [STALE]


async def test_a_start_told_by_a_former_holder_ends_nothing_that_is_to_be_cancelled(desk: Desk) -> None:
    """Its holder still runs it and is told to end it; only that one knows when it has."""
    one = await desk.claimed()
    assert await desk.report(start_of(one)) == [OK]
    await desk.engine.actions.cancel(WHO, one.task_id)
    assert await desk.report(m.Start(one.id, uuid4())) == [STALE]
    (live,) = (await desk.engine.task(one.task_id)).instances
    assert (live.status, live.cancel_requested) == ("running", True)


async def test_what_was_ended_between_the_look_and_the_end_is_not_begun(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await desk.claimed()
    assert await desk.report(start_of(one)) == [OK]
    await desk.engine.actions.cancel(WHO, one.task_id)
    look = queue_store.look_up

    async def ended_after_the_look(connection: Connection, held: Sequence[tuple[UUID, UUID]]) -> Any:
        found = await look(connection, held)
        await desk.engine.finish(one, status=InstanceStatus.CANCELLED)
        return found

    monkeypatch.setattr(queue_store, "look_up", ended_after_the_look)
    assert await desk.report(start_of(one)) == [STALE]


async def test_what_is_cancelled_once_it_was_started_is_told_to_its_agent_like_any_other(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its start is committed and answered; another of the same batch has to be looked up."""
    one = await desk.claimed()
    forged = structs.replace(start_of(one), instance_id=uuid4())
    look = queue_store.look_up

    async def cancelled_before_the_look(connection: Connection, held: Sequence[tuple[UUID, UUID]]) -> Any:
        await desk.engine.actions.cancel(WHO, one.task_id)
        return await look(connection, held)

    monkeypatch.setattr(queue_store, "look_up", cancelled_before_the_look)
    assert await desk.report(start_of(one), forged) == [OK, STALE]
    (live,) = (await desk.engine.task(one.task_id)).instances
    assert (live.status, live.cancel_requested) == ("running", True)


async def test_what_a_task_says_of_its_end_keeps_nobody_from_ending(desk: Desk) -> None:
    """An exception may have any text; PostgreSQL keeps none with a NUL."""
    one, late, other = [await desk.claimed() for _ in range(3)]
    await desk.engine.release(late)
    told = [end_of(claim, message="a\0b", reason="\0") for claim in (one, late)]
    assert await desk.report(*told, end_of(other)) == [OK, STALE, OK]
    (ended,) = (await desk.engine.task(one.task_id)).instances
    assert (ended.status, ended.reason, ended.message) == ("failed", "\ufffd", "a\ufffdb")
    (kept,) = (await desk.engine.task(late.task_id)).late_results
    assert kept.message == "a\ufffdb"


async def test_an_output_with_a_nul_is_refused_and_one_that_speaks_of_it_is_not(desk: Desk) -> None:
    one = await desk.claimed()
    with pytest.raises(Invalid, match="NUL"):
        await desk.report(end_of(one, SUCCEEDED, output={"a": ["\\\0"]}))
    assert await desk.report(end_of(one, SUCCEEDED, output={"a": "\\u0000"})) == [OK]
    assert (await desk.engine.task(one.task_id)).output == {"a": "\\u0000"}


async def test_only_the_holder_of_a_claim_starts_it_ends_it_or_gives_it_back(desk: Desk) -> None:
    one, other = await desk.claimed(), uuid4()
    strange = [m.Start(one.id, other), m.Release(one.id, other), m.Finish(one.id, other, SUCCEEDED)]
    for started in (False, True):
        if started:
            assert await desk.report(start_of(one)) == [OK]
        for report in (*strange, m.Finish(one.id, other, FAILED)):
            assert await desk.report(report) == [STALE]
        (live,) = (await desk.engine.task(one.task_id)).instances
        assert live.status == ("running" if started else "reserved")
    assert await desk.report(m.Release(one.id, one.token)) == [OK], (
        "its start was committed; it had not begun"
    )
    (live,) = (await desk.engine.task(one.task_id)).instances
    assert (live.status, live.started_at) == ("pending", None)


async def test_what_changes_hands_after_the_look_is_not_ended_by_its_former_holder(desk: Desk) -> None:
    """A claim may be given back and taken by another meanwhile: the statement itself asks for the token."""
    one = await desk.claimed()
    former = [Ending(one.id, uuid4(), FAILED)]
    async with desk.engine.database.transaction() as connection:
        assert await transitions.finish(connection, former) == []
        assert len(await transitions.finish(connection, [Ending(one.id, one.token, FAILED)])) == 1


async def test_a_heartbeat_keeps_what_is_held_and_names_what_is_to_end(desk: Desk) -> None:
    one, other, gone = [await desk.claimed() for _ in range(3)]
    await desk.report(start_of(one))
    await desk.engine.actions.cancel(WHO, other.task_id)
    await desk.engine.release(gone)
    kept = await desk.heartbeat(other, gone, one)
    assert set(kept.kept) == {one.id, other.id}
    assert kept.cancels == [m.Cancel(other.id, other.token)]


async def test_a_heartbeat_renews_what_is_held_and_nothing_else(desk: Desk) -> None:
    begun, reserved, other = [await desk.claimed() for _ in range(3)]
    await desk.report(start_of(begun))
    desk.engine.rows.execute(
        "UPDATE sched_task_instance SET lease_until = now() + interval '1 s' WHERE status = 'running'"
    )
    desk.engine.rows.execute(
        "UPDATE sched_task_instance SET reserved_until = now() + interval '1 s' WHERE status = 'reserved'"
    )
    await desk.heartbeat(begun, reserved)
    renewed = desk.engine.rows.execute(
        "SELECT id FROM sched_task_instance "
        "WHERE coalesce(lease_until, reserved_until) > now() + interval '3 s'"
    ).fetchall()
    assert {id_ for (id_,) in renewed} == {begun.id, reserved.id}
    assert other.id not in (await desk.heartbeat(begun)).kept


async def test_a_heartbeat_of_a_former_holder_renews_nothing(desk: Desk) -> None:
    begun, reserved = [await desk.claimed() for _ in range(2)]
    await desk.report(start_of(begun))
    until = "SELECT id, lease_until, reserved_until FROM sched_task_instance ORDER BY id"
    before = desk.engine.rows.execute(until).fetchall()
    former = [structs.replace(one, token=uuid4()) for one in (begun, reserved)]
    assert (await desk.heartbeat(*former)).kept == []
    assert desk.engine.rows.execute(until).fetchall() == before


@pytest.mark.parametrize("due_in", [-3_600, 60])
async def test_a_heartbeat_renews_a_reservation_from_now_on_or_from_when_it_is_due(
    desk: Desk, due_in: int
) -> None:
    """What waits for its time on an agent is not given to another, nor is what has waited for long."""
    one = await desk.claimed()
    desk.engine.rows.execute(
        "UPDATE sched_task_instance SET due_at = now() + make_interval(secs => %s)", [due_in]
    )
    begun = datetime.now(UTC)
    assert (await desk.heartbeat(one)).kept == [one.id]
    times = "SELECT due_at, reserved_until FROM sched_task_instance"
    ((due_at, until),) = desk.engine.rows.execute(times).fetchall()
    assert until >= max(begun, due_at) + RESERVATION


async def test_heartbeats_that_meet_wait_for_each_other_in_one_direction(desk: Desk) -> None:
    """An agent that was cut off says it again to another server: in whatever order it has its claims."""
    first, last = sorted([await desk.claimed() for _ in range(2)], key=lambda one: one.id)
    lock = "SELECT id FROM sched_task_instance WHERE id = %s FOR UPDATE"
    with psycopg.connect(desk.engine.url) as rival:
        rival.execute(lock, [first.id])
        telling = asyncio.create_task(desk.heartbeat(last, first))
        await wait_until_async(lambda: waits_for_lock(desk.engine.rows), what="the first to be waited for")
        assert desk.engine.rows.execute(f"{lock} NOWAIT", [last.id]).fetchone() == (last.id,)
    assert set((await telling).kept) == {first.id, last.id}


async def test_a_heartbeat_tells_how_busy_the_host_is(desk: Desk) -> None:
    usage = m.HostUsage(10.0, 1.0, 500, 100, 1000)
    await desk.heartbeat(host=usage)
    await desk.fleet.sessions.flush_seen()
    row = desk.engine.rows.execute("SELECT host_usage FROM sched_agent").fetchone()
    assert row is not None
    assert convert(row[0], m.HostUsage) == usage


async def test_progress_keeps_within_bounds(desk: Desk) -> None:
    one = await desk.claimed()
    await desk.report(start_of(one))
    for percent, message in ((-0.1, ""), (100.1, ""), (1, "x" * 201), (1, "\0")):
        with pytest.raises(Invalid):
            await desk.heartbeat(one, progress=[m.Progress(one.id, one.token, percent, message)])
    for percent, message in ((0, ""), (100, "x" * 200)):
        await desk.heartbeat(one, progress=[m.Progress(one.id, one.token, percent, message)])
        row = desk.engine.rows.execute("SELECT progress FROM sched_task_instance").fetchone()
        assert row == ({"percent": percent, "message": message},)


async def test_a_batch_is_answered_in_its_order_and_has_its_bounds(desk: Desk) -> None:
    begun, over, back = [await desk.claimed() for _ in range(3)]
    told = [m.Release(back.id, back.token), end_of(over), start_of(begun), m.Release(uuid4(), uuid4())]
    assert await desk.report(*told) == [OK, OK, OK, STALE]
    assert await desk.report(*[start_of(begun)] * 200) == [OK] * 200
    with pytest.raises(Invalid):
        await desk.report(*[start_of(begun)] * 201)


@pytest.mark.parametrize("status", [SUCCEEDED, FAILED])
async def test_what_began_and_ended_within_a_batch_did_so_in_this_order(
    desk: Desk, status: InstanceStatus
) -> None:
    one = await desk.claimed()
    assert await desk.report(end_of(one, status), start_of(one)) == [OK, OK]
    back = await desk.claimed()
    told = [end_of(back, status), m.Release(back.id, back.token)]
    assert await desk.report(*told) == [STALE, OK], "given back is given back"
    again = await desk.claimed()
    assert await desk.report(m.Release(again.id, again.token), start_of(again)) == [OK, OK]


@pytest.mark.parametrize("status", [SUCCEEDED, FAILED])
async def test_ends_within_flows_and_without_count_alike(desk: Desk, status: InstanceStatus) -> None:
    """They are taken apart, because runs of flows are locked before anything else."""
    node, other = await desk.claimed(), await desk.claimed()
    desk.engine.rows.execute(
        "UPDATE sched_task_instance SET flow_run_id = gen_random_uuid() WHERE id = %s", [node.id]
    )
    assert await desk.report(end_of(node, status), end_of(other, status)) == [OK, OK]
    for one in (node, other):
        task = await desk.engine.task(one.task_id)
        assert (task.status, task.late_results) == (status.value, [])


async def test_an_end_is_not_looked_at_before_its_start_is_committed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await desk.claimed()
    start, finish, said = desk.reporting._starting.ask, desk.reporting._finishing.ask, []

    async def starting(asked: Any) -> Any:
        outcomes = await start(asked)
        said.append("started")
        return outcomes

    async def finishing(asked: Any) -> Any:
        said.append("finishing")
        return await finish(asked)

    monkeypatch.setattr(desk.reporting._starting, "ask", starting)
    monkeypatch.setattr(desk.reporting._finishing, "ask", finishing)
    assert await desk.report(start_of(one), end_of(one, SUCCEEDED)) == [OK, OK]
    assert said == ["started", "finishing"]


async def test_every_end_is_told_to_whoever_waits_for_it(desk: Desk) -> None:
    """Ends make room and retries; a claim elsewhere on this server waits for either."""
    spec: dict[str, Any] = {"concurrency": {"max": 1}, **AGAIN}
    for status in (SUCCEEDED, FAILED, CANCELLED):
        one, told = await desk.claimed(**spec), desk.heard()
        with desk.engine.hints.waiting([instance_topic(one.id)]) as waiter:
            if status is CANCELLED:
                await desk.engine.actions.cancel(WHO, one.task_id)
                told.clear()
                assert await desk.report(start_of(one)) == [CANCELLED]
            else:
                assert await desk.report(end_of(one, status)) == [OK]
            assert await waiter.wait(0), "it is followed"
        assert namespace_topic(DEFAULT) in told
    for report_of in (end_of, lambda one: m.Release(one.id, one.token)):
        one, told = await desk.claimed(**AGAIN), desk.heard()
        assert await desk.report(report_of(one)) == [OK]
        assert namespace_topic(DEFAULT) in told, "it is there once more, without any limit"


async def test_what_cannot_be_an_end_is_refused(desk: Desk) -> None:
    one = await desk.claimed()
    for facts in (
        {"status": InstanceStatus.RUNNING},
        {"started_at": -1},
        {"finished_at": 253_402_300_800_000},
        {"output": {"x": "y" * 512 * 1024}},
    ):
        with pytest.raises(Invalid):
            await desk.report(end_of(one, **facts))  # type: ignore[arg-type] # of a finish
    assert await desk.report(end_of(one, started_at=0, finished_at=253_402_300_799_999)) == [OK]


async def test_rules_are_asked_about_all_that_an_end_tells(desk: Desk) -> None:
    for when, facts in (({"oom": True}, {"oom": True}), ({"signal": [9]}, {"signal": 9})):
        rules = [{"when": when, "then": {"retry": False}}]
        for told, instances in ((facts, 1), ({}, 2)):
            one = await desk.claimed(retry={**AGAIN["retry"], "rules": rules})
            assert await desk.report(end_of(one, message="because", **told)) == [OK]
            attempts = (await desk.engine.task(one.task_id)).instances
            assert (len(attempts), attempts[0].message) == (instances, "because")
