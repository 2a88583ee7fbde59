"""When agents were heard of, and how busy their hosts are, is written for all of them in one statement."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import uuid4

import pytest

from hetuflow_core.messages import HostUsage
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.agents import usage_store
from hetuflow_server.agents.usage_store import SampleFilter
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.upkeep.expiry_store import delete_expired
from tests.support.queue.claiming_engine import Engine, engine_on
from tests.support.queue.fleet import Fleet

_SEEN = "SELECT count(*) FROM sched_agent WHERE last_seen_at > now() - interval '1 minute'"


@pytest.fixture
async def engine(fresh_database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(fresh_database_url) as engine:
        yield engine


def statements_of(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    statements: list[str] = []
    execute = Connection.execute

    async def noted(self: Connection, statement: str, *arguments: Any, **options: Any) -> Any:
        statements.append(statement)
        return await execute(self, statement, *arguments, **options)

    monkeypatch.setattr(Connection, "execute", noted)
    return statements


async def test_however_many_were_heard_of(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, names = Fleet(engine), [f"agent-{number}" for number in range(30)]
    for name in names:
        await fleet.register(name)
    engine.rows.execute("UPDATE sched_agent SET last_seen_at = now() - interval '1 hour'")
    for name in names[:20] * 2:
        await fleet.poll(name)
    assert engine.rows.execute(_SEEN).fetchone() == (0,), "a poll itself writes nothing"
    statements = statements_of(monkeypatch)
    await fleet.sessions.flush_seen()
    await fleet.sessions.flush_seen()
    assert len(statements) == 1, "and nothing where nobody was"
    assert engine.rows.execute(_SEEN).fetchone() == (20,)


class SetClock(SystemClock):
    at = datetime(2026, 7, 1, 12, 0, 30, tzinfo=UTC)

    def now(self) -> datetime:
        return self.at


def busy(cpu: float, free: int = 100) -> HostUsage:
    return HostUsage(cpu, 1.0, 500, free, 1000)


async def test_how_busy_hosts_were_is_kept_by_the_minute_for_all_in_one_statement(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    fleet = Fleet(engine)
    clock = fleet.sessions._clock = SetClock()
    first, second = await fleet.register("first"), await fleet.register("second")
    statements = statements_of(monkeypatch)
    for _ in range(4):
        await fleet.sessions.flush_seen()
        for agent_id, cpu in ((first, 10.0), (second, 60.0), (uuid4(), 1.0)):
            fleet.sessions.note_host(agent_id, busy(cpu, free=clock.at.minute))
        clock.at += timedelta(minutes=1)
    await fleet.sessions.flush_seen()
    await fleet.sessions.flush_seen()
    assert len([one for one in statements if "INSERT INTO sched_agent_usage" in one]) == 4
    noon = clock.at.replace(minute=0, second=0)
    minutes = [noon + timedelta(minutes=3 - n) for n in range(4)]
    async with engine.database.transaction() as connection:
        found = await usage_store.samples(connection, SampleFilter(first), 10)
        assert [(one.at, one.cpu_percent, one.memory_available) for one in found] == [
            (at, 10.0, at.minute) for at in minutes
        ]
        since = SampleFilter(second, minutes=2, since=minutes[2])
        found = await usage_store.samples(connection, since, 10)
        assert [(one.at, one.memory_available) for one in found] == [(minutes[1], 2), (minutes[3], 1)]
        page = await usage_store.samples(connection, SampleFilter(second, before=minutes[1]), 1)
        assert [one.at for one in page] == [minutes[2]]
        # Nobody is there whose samples those of a stranger would be.
        count = await connection.execute("SELECT count(*) FROM sched_agent_usage")
        assert count.scalar_one() == 8
        # A minute that another server has kept already stays as it is.
        await usage_store.keep(connection, minutes[0], [(first, busy(99.0))])
        again = await usage_store.samples(connection, SampleFilter(first), 1)
        assert [one.cpu_percent for one in again] == [10.0]
        await usage_store.forget(connection, first)
        assert await usage_store.samples(connection, SampleFilter(first), 1) == []
    # By whole hours, so that upkeep does not come again every minute.
    old = datetime(2000, 1, 1, tzinfo=UTC)
    for cutoff, left in ((noon + timedelta(minutes=59), 4), (noon + timedelta(hours=1), 0)):
        await delete_expired(engine.database, old, old, cutoff)
        assert engine.rows.execute("SELECT count(*) FROM sched_agent_usage").fetchone() == (left,)


async def test_samples_of_one_host_are_found_by_its_key(engine: Engine) -> None:
    engine.rows.execute(
        "INSERT INTO sched_agent_usage SELECT gen_random_uuid(), now(), 1, 1, 1, 1, 1 "
        "FROM generate_series(1, 20000)"
    )
    engine.rows.execute("ANALYZE sched_agent_usage")
    wanted = SampleFilter(uuid4(), since=datetime.now(UTC)).parameters() | {"limit": 100}
    plan = engine.rows.execute(f"EXPLAIN {usage_store.SAMPLES}", wanted).fetchall()
    assert "sched_agent_usage_pkey" in str(plan)
    assert "Seq Scan" not in str(plan)
