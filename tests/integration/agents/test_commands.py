"""Commands to agents as rows: which of them are delivered, when again, and how they end."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from hetuflow_core import ids
from hetuflow_core.agent.commands import LONGEST_PAUSE, MOST_ATTEMPTS, CommandKind
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.agents import commands_store as store
from hetuflow_server.postgres.database import Database

DRAIN, RESUME, SHUTDOWN = CommandKind.DRAIN, CommandKind.RESUME, CommandKind.SHUTDOWN
METRICS, CONFIGURE = CommandKind.METRICS, CommandKind.CONFIGURE
ENDED = {"'acknowledged'", "'superseded'", "'dead'"}


class Desk:
    def __init__(self, database: Database, rows: psycopg.Connection[Any]) -> None:
        self.database, self.rows = database, rows
        self._made = 0

    def agent(self, name: str, session: UUID | None = None) -> UUID:
        agent = uuid4()
        self.rows.execute(
            "INSERT INTO sched_agent (id, name, status, session_id, registered_at, last_seen_at) "
            "VALUES (%s, %s, 'online', %s, now(), now())",
            [agent, name, session or uuid4()],
        )
        return agent

    async def issue(self, agent: UUID, kind: CommandKind, **columns: Any) -> UUID:
        """A command of this agent; `columns` are SQL for what has become of it."""
        self._made += 1
        new = ids.new_id(SystemClock().now() + timedelta(milliseconds=self._made), uuid4().bytes[:10])
        async with self.database.transaction() as connection:
            await store.issue(
                connection, id_=new, agent_id=agent, kind=kind, payload={}, created_by="somebody"
            )
        self.become(new, **columns)
        return new

    def become(self, command: UUID, **columns: Any) -> None:
        if columns.get("state") in ENDED:
            columns["ended_at"] = "clock_timestamp()"
        if columns:
            settings = ", ".join(f"{column} = {value}" for column, value in columns.items())
            self.rows.execute(f"UPDATE sched_agent_command SET {settings} WHERE id = %s", [command])

    async def deliver(self, agent: UUID) -> list[UUID]:
        async with self.database.transaction() as connection:
            return [command.id for command in await store.deliver(connection, agent)]

    async def expected(self) -> set[UUID]:
        async with self.database.transaction() as connection:
            return (await store.expected(connection))[0]

    async def give_up(self) -> set[UUID]:
        async with self.database.transaction() as connection:
            return {command for command, _, _ in await store.give_up(connection)}

    def states(self, *commands: UUID) -> list[str]:
        found = dict(self.rows.execute("SELECT id, state FROM sched_agent_command").fetchall())
        return [found[command] for command in commands]


@pytest.fixture
def rows(fresh_database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(fresh_database_url, autocommit=True) as connection:
        yield connection


@pytest.fixture
def desk(database: Database, rows: psycopg.Connection[Any]) -> Desk:
    return Desk(database, rows)


async def test_a_word_on_taking_work_ends_the_earlier_ones_to_this_agent_and_nothing_else(desk: Desk) -> None:
    a, b = desk.agent("a"), desk.agent("b")
    heard = await desk.issue(a, DRAIN, state="'acknowledged'")
    dead = await desk.issue(a, RESUME, state="'dead'")
    told = await desk.issue(a, DRAIN, state="'delivered'")
    other_kind, elsewhere = await desk.issue(a, CONFIGURE), await desk.issue(b, DRAIN)
    last = await desk.issue(a, RESUME)
    assert desk.states(heard, dead, told, other_kind, elsewhere, last) == [
        *("acknowledged", "dead", "superseded"),
        *("pending", "pending", "pending"),
    ]


async def test_what_was_meant_for_a_process_ends_with_it_and_nothing_else_does(desk: Desk) -> None:
    session = uuid4()
    a, b = desk.agent("a", session), desk.agent("b", uuid4())
    mine = [
        await desk.issue(a, SHUTDOWN),
        await desk.issue(a, METRICS, state="'delivered'"),
        await desk.issue(a, METRICS, state="'acknowledged'"),
        await desk.issue(a, CONFIGURE),
    ]
    elsewhere = await desk.issue(b, SHUTDOWN)
    async with desk.database.transaction() as connection:
        await store.end_outlived(connection, "a", session)
    assert desk.states(*mine) == ["pending", "delivered", "acknowledged", "pending"], "it is still there"
    async with desk.database.transaction() as connection:
        await store.end_outlived(connection, "a", uuid4())
    assert desk.states(*mine) == ["superseded", "superseded", "acknowledged", "pending"]
    assert desk.states(elsewhere) == ["pending"]


async def test_the_oldest_come_first_and_only_what_may_still_come(desk: Desk) -> None:
    a, b = desk.agent("a"), desk.agent("b")
    first, second = await desk.issue(a, CONFIGURE), await desk.issue(a, METRICS)
    await desk.issue(b, METRICS)
    past, future = "clock_timestamp() - interval '1 s'", "clock_timestamp() + interval '1 s'"
    for columns in (
        {"expires_at": past},
        {"next_attempt_at": future},
        {"attempts": MOST_ATTEMPTS},
        {"state": "'acknowledged'"},
        {"state": "'dead'"},
        {"state": "'superseded'"},
    ):
        await desk.issue(a, METRICS, **columns)
    assert await desk.expected() == {a, b}
    assert await desk.deliver(a) == [first, second]
    assert await desk.expected() == {b}, "the rest of them is not worth a call"
    assert await desk.deliver(a) == []


async def test_pauses_double_up_to_the_longest(desk: Desk) -> None:
    command = await desk.issue(agent := desk.agent("a"), CONFIGURE)
    pauses = []
    for _ in range(MOST_ATTEMPTS):
        desk.become(command, next_attempt_at="clock_timestamp()")
        assert await desk.deliver(agent) == [command]
        row = desk.rows.execute("SELECT next_attempt_at - delivered_at FROM sched_agent_command").fetchone()
        assert row is not None
        pauses.append(round(row[0].total_seconds()))
    longest = int(LONGEST_PAUSE.total_seconds())
    assert pauses == [5, 10, 20, 40, 80, 160, *[longest] * (MOST_ATTEMPTS - 6)]
    desk.become(command, next_attempt_at="clock_timestamp()")
    assert await desk.deliver(agent) == []


async def test_what_is_given_up_has_had_all_its_time(desk: Desk) -> None:
    a = desk.agent("a")
    past = "clock_timestamp() - interval '1 s'"
    late = await desk.issue(a, METRICS, expires_at=past)
    spent = await desk.issue(a, METRICS, state="'delivered'", attempts=MOST_ATTEMPTS, next_attempt_at=past)
    in_time = await desk.issue(
        a,
        METRICS,
        state="'delivered'",
        attempts=MOST_ATTEMPTS,
        next_attempt_at="clock_timestamp() + interval '1 minute'",
    )
    tried = await desk.issue(a, METRICS, attempts=MOST_ATTEMPTS - 1, next_attempt_at=past)
    heard = await desk.issue(a, METRICS, state="'acknowledged'", expires_at=past)
    superseded = await desk.issue(a, METRICS, state="'superseded'", expires_at=past)
    assert await desk.give_up() == {late, spent}
    assert desk.states(late, spent, in_time, tried, heard, superseded) == [
        *("dead", "dead", "delivered"),
        *("pending", "acknowledged", "superseded"),
    ]
    assert await desk.give_up() == set()


async def test_an_answer_counts_once_and_not_to_what_a_later_word_has_ended(desk: Desk) -> None:
    a, b = desk.agent("a"), desk.agent("b")
    mine = [
        await desk.issue(a, METRICS, state="'delivered'"),
        await desk.issue(a, METRICS, state="'dead'"),
        await desk.issue(a, METRICS, state="'superseded'"),
    ]
    others = await desk.issue(b, METRICS, state="'delivered'")

    async def answer(text: str) -> list[Any]:
        async with desk.database.transaction() as connection:
            await store.acknowledge(connection, a, [(one, f'"{text}"', None) for one in (*mine, others)])
        found = dict(desk.rows.execute("SELECT id, result FROM sched_agent_command").fetchall())
        return [found[one] for one in (*mine, others)]

    assert await answer("first") == ["first", "first", None, None]
    assert await answer("second") == ["first", "first", None, None]
    assert desk.states(*mine, others) == ["acknowledged", "acknowledged", "superseded", "delivered"]
