"""When agents were heard of last is written once a second for all of them, in one statement."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hetuflow_server.store.connection import Connection
from tests.support.claiming_engine import Engine, engine_on
from tests.support.fleet import Fleet

_SEEN = "SELECT count(*) FROM sched_agent WHERE last_seen_at > now() - interval '1 minute'"


@pytest.fixture
async def engine(fresh_database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(fresh_database_url) as engine:
        yield engine


async def test_however_many_were_heard_of(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    fleet, names = Fleet(engine), [f"agent-{number}" for number in range(30)]
    for name in names:
        await fleet.register(name)
    engine.rows.execute("UPDATE sched_agent SET last_seen_at = now() - interval '1 hour'")
    for name in names[:20] * 2:
        await fleet.poll(name)
    assert engine.rows.execute(_SEEN).fetchone() == (0,), "a poll itself writes nothing"
    statements: list[str] = []
    execute = Connection.exec_driver_sql

    async def noted(self: Connection, statement: str, *arguments: Any, **options: Any) -> Any:
        statements.append(statement)
        return await execute(self, statement, *arguments, **options)

    monkeypatch.setattr(Connection, "exec_driver_sql", noted)
    await fleet.sessions.flush_seen()
    await fleet.sessions.flush_seen()
    assert len(statements) == 1, "and nothing where nobody was"
    assert engine.rows.execute(_SEEN).fetchone() == (20,)
