"""Ends that came too late to count: each is kept once, by whoever told it, and shown with its task."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from uuid import UUID, uuid4

import psycopg
import pytest
from msgspec import structs

from hetuflow_core import ids, messages as m
from hetuflow_core.states import InstanceStatus
from hetuflow_server.queue import late_reports_store
from hetuflow_server.queue.late_reports_store import LateReport
from tests.support.agent.report_sink import Desk, end_of
from tests.support.queue.claiming_engine import DEFAULT, engine_on
from tests.support.waiting import wait_until_async, waits_for_lock

OK, STALE = m.ReportOutcome.OK, m.ReportOutcome.STALE
FAILED, SUCCEEDED = InstanceStatus.FAILED, InstanceStatus.SUCCEEDED


@pytest.fixture
async def desk(fresh_database_url: str) -> AsyncIterator[Desk]:
    async with engine_on(fresh_database_url) as engine:
        desk = Desk(engine)
        await desk.fleet.register("a", slots=9)
        yield desk


async def test_a_late_end_is_kept_under_the_name_of_whoever_told_it(desk: Desk) -> None:
    """Agents that report at the same time share a transaction."""
    one = await desk.claimed()
    agents = [await desk.fleet.register(name) for name in ("b", "c")]
    told = [(agent, [m.Finish(one.id, uuid4(), FAILED, exit_code=n)]) for n, agent in enumerate(agents)]
    assert await desk.reporting._finish(told) == [[STALE], [STALE]]
    late = (await desk.engine.task(one.task_id)).late_results
    assert sorted((result.agent, result.exit_code) for result in late) == [("b", 0), ("c", 1)]


async def test_late_ends_are_shown_the_first_first_also_of_who_is_gone_and_of_what_is_over(
    desk: Desk,
) -> None:
    one = await desk.claimed()
    assert await desk.report(end_of(one)) == [OK]
    for code in range(21):
        assert await desk.report(m.Finish(one.id, uuid4(), FAILED, exit_code=code)) == [STALE]
    assert await desk.report(m.Finish(uuid4(), uuid4(), FAILED)) == [STALE], "nobody knows it"
    desk.engine.rows.execute("DELETE FROM sched_agent")
    late = (await desk.engine.task(one.task_id)).late_results
    assert [(result.agent, result.exit_code) for result in late] == [(None, code) for code in range(20)]
    rows = desk.engine.rows.execute(
        "SELECT task_id, namespace_id FROM sched_late_report ORDER BY reported_at"
    ).fetchall()
    assert rows == [(one.task_id, DEFAULT)] * 21 + [(None, 0)]


@pytest.mark.parametrize("status", [SUCCEEDED, FAILED])
async def test_a_late_end_that_is_told_again_is_kept_once(desk: Desk, status: InstanceStatus) -> None:
    """Its answer was lost, or it shares a batch with itself; of one attempt there may well be several."""
    one, other = await desk.claimed(), await desk.claimed()
    first = m.Finish(one.id, uuid4(), status, output={"said": "first", "n": 1})
    assert await desk.report(first, first) == [STALE, STALE]
    (kept,) = (await desk.engine.task(one.task_id)).late_results
    assert await desk.report(first) == [STALE]
    assert (await desk.engine.task(one.task_id)).late_results == [kept], "as it came first"
    others = [
        structs.replace(first, output={"said": "else", "n": 1}),
        structs.replace(first, token=uuid4()),
        structs.replace(first, exit_code=7),
    ]
    for report in (*others, structs.replace(first, instance_id=other.id)):
        assert await desk.report(report, first) == [STALE, STALE]
    assert len((await desk.engine.task(one.task_id)).late_results) == 4
    assert len((await desk.engine.task(other.task_id)).late_results) == 1
    assert await desk.report(end_of(one), end_of(other)) == [OK, OK], "none of them has ended anything"


async def test_late_ends_told_to_two_servers_at_once_wait_for_each_other_in_one_direction(
    desk: Desk,
) -> None:
    (agent,) = (row[0] for row in desk.engine.rows.execute("SELECT id FROM sched_agent"))
    one, two = sorted(late_report_of(agent) for _ in range(2))

    async def keep(*reports: LateReport) -> None:
        async with desk.engine.database.transaction() as connection:
            await late_reports_store.keep(connection, reports)

    with psycopg.connect(desk.engine.url) as rival:
        rival.execute(
            "INSERT INTO sched_late_report (id, namespace_id, instance_id, token, report) "
            "VALUES (%s, 0, %s, %s, '{}')",
            [one.id, one.instance_id, one.token],
        )
        keeping = asyncio.create_task(keep(two, one))
        await wait_until_async(
            lambda: waits_for_lock(desk.engine.rows), what="the first of them to be waited for"
        )
        rival.execute("SET LOCAL lock_timeout = '2s'")
        rival.execute(
            "INSERT INTO sched_late_report (id, namespace_id, instance_id, token, report) "
            "VALUES (%s, 0, %s, %s, '{}')",
            [two.id, two.instance_id, two.token],
        )
    await keeping
    assert desk.engine.rows.execute("SELECT count(*) FROM sched_late_report").fetchone() == (2,)


def late_report_of(agent: UUID) -> LateReport:
    instance, token = uuid4(), uuid4()
    return LateReport(ids.late_report(instance, token.bytes), agent, instance, token, "{}")
