"""Hints between servers: they arrive, they are not echoed, and a lost connection is made up for."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.cluster.hints import (
    Hints,
    Topic,
    agent_topic,
    backlog_topic,
    daemons_topic,
    events_topic,
    namespace_topic,
)
from hetuflow_server.cluster.relay import _ASK_FOR_OTHERS_EVERY_SECONDS, EVERYTHING, Relay
from hetuflow_server.postgres import notifications
from hetuflow_server.postgres.database import Database
from tests.support.waiting import wait_until_async


class SetClock(SystemClock):
    elapsed = 1_000.0

    def monotonic(self) -> float:
        return self.elapsed


class Server:
    """As much of a server as hints know."""

    def __init__(self, database: Database, url: str) -> None:
        self.hints = Hints()
        self.relay = Relay(database, url, self.hints, SystemClock())
        self.relayed: list[Topic] = []
        self.hints.listen(self._note)

    def _note(self, topics: Collection[Topic], *, relayed: bool) -> None:
        if relayed:
            self.relayed.extend(topics)


@asynccontextmanager
async def serving(url: str) -> AsyncIterator[Server]:
    database = Database(
        url, pool_size=2, connect_timeout=timedelta(seconds=5), statement_timeout=timedelta(seconds=10)
    )
    server = Server(database, url)
    await server.relay.start()
    await wait_until_async(server.relay.connected.is_set, what="the listening connection")
    yield server
    await server.relay.stop()
    await database.stop()


async def test_hints_reach_the_other_server_and_are_not_echoed(database_url: str) -> None:
    agent = uuid4()
    async with serving(database_url) as here, serving(database_url) as there:
        assert there.relayed == [EVERYTHING]
        # Where exactly work has come is nothing that others know heads by: they look at its namespace.
        here.hints.give([namespace_topic(7), agent_topic(agent), daemons_topic(9), backlog_topic(6, 1, 500)])
        wanted = {EVERYTHING, namespace_topic(7), agent_topic(agent), daemons_topic(9), namespace_topic(6)}
        await wait_until_async(lambda: set(there.relayed) == wanted, what="the hints")
        assert not here.relay._some.is_set(), "all is said"
        there.hints.give([namespace_topic(8)])
        await wait_until_async(lambda: namespace_topic(8) in here.relayed, what="the answer")
        assert namespace_topic(7) not in here.relayed


async def test_every_kind_of_news_reaches_the_other_server(database_url: str) -> None:
    """A head as its namespace, for whoever is there knows nothing of it; agents as many as there are."""
    agents = {agent_topic(uuid4()) for _ in range(300)}
    async with serving(database_url) as here, serving(database_url) as there:
        here.hints.give([backlog_topic(3, 5, 500), daemons_topic(4), *agents])
        with psycopg.connect(database_url, autocommit=True) as application:
            application.execute("SELECT hetuflow_emit('default', 'day.begun')")
        wanted = {EVERYTHING, namespace_topic(3), daemons_topic(4), events_topic(1), *agents}
        await wait_until_async(lambda: set(there.relayed) == wanted, timeout=20, what="all of it")


async def test_a_lost_connection_is_opened_again_and_everything_looked_at(database_url: str) -> None:
    async with serving(database_url) as server:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute(
                "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                "WHERE datname = current_database() AND application_name = 'hetuflow relay'",
            )
        await wait_until_async(lambda: not server.relay.connected.is_set(), what="the loss to be known")
        await wait_until_async(lambda: server.relayed == [EVERYTHING, EVERYTHING], what="the second look")
        assert server.relay.connected.is_set()


async def test_what_others_say_on_the_channel_is_ignored(database_url: str) -> None:
    async with serving(database_url) as here, serving(database_url) as there:
        with psycopg.connect(database_url, autocommit=True) as connection:
            connection.execute("NOTIFY hetuflow, 'good morning'")
        here.hints.give([namespace_topic(1)])
        await wait_until_async(lambda: namespace_topic(1) in there.relayed, what="the next hint")
        assert set(there.relayed) == {EVERYTHING, namespace_topic(1)}


@pytest.mark.parametrize("count", [1, 250])
async def test_many_hints_are_few_notifications(database_url: str, count: int) -> None:
    """And none is too long for PostgreSQL."""
    hints = {agent_topic(uuid4()) for _ in range(count)}
    async with serving(database_url) as here, serving(database_url) as there:
        with psycopg.connect(database_url, autocommit=True) as listening:
            listening.execute("LISTEN hetuflow")
            for hint in hints:
                here.hints.give([hint])
            await wait_until_async(lambda: hints <= set(there.relayed), what="all hints")
            heard = [notify.payload for notify in listening.notifies(timeout=0)]
    assert len(heard) <= 1 + count // 50


async def test_with_nobody_to_hear_it_nothing_is_said(database_url: str) -> None:
    async with serving(database_url) as alone:
        with psycopg.connect(database_url, autocommit=True) as listening:
            listening.execute("LISTEN hetuflow")
            alone.hints.give([namespace_topic(1)])
            await wait_until_async(
                lambda: alone.relay._others_known_until > 0, what="the question who listens"
            )
            alone.hints.give([namespace_topic(2)])
            await wait_until_async(lambda: not alone.relay._news, what="the end of the first attempt")
            await alone.relay.stop()
            listening.execute("NOTIFY hetuflow, 'the end'")
            assert [notify.payload for notify in listening.notifies(timeout=5, stop_after=1)] == ["the end"]


async def test_who_comes_later_is_noticed_within_a_while_and_nobody_is_asked_for_all_the_time(
    database_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked, look = list[bool](), notifications.others_listen

    async def counted(*arguments: Any) -> bool:
        asked.append(await look(*arguments))
        return asked[-1]

    monkeypatch.setattr(notifications, "others_listen", counted)
    async with serving(database_url) as here:
        clock = here.relay._clock = SetClock()

        async def told(topic: Topic) -> None:
            here.hints.give([topic])
            await wait_until_async(lambda: not here.relay._news, what="it to be taken up")

        await told(namespace_topic(1))
        await wait_until_async(lambda: asked == [False], what="the question who listens")
        async with serving(database_url) as there:
            clock.elapsed += _ASK_FOR_OTHERS_EVERY_SECONDS / 2
            await told(namespace_topic(2))
            clock.elapsed += _ASK_FOR_OTHERS_EVERY_SECONDS / 2
            await told(namespace_topic(3))
            await wait_until_async(lambda: namespace_topic(3) in there.relayed, what="the first it can hear")
            assert set(there.relayed) == {EVERYTHING, namespace_topic(3)}
            await told(namespace_topic(4))
            await wait_until_async(lambda: namespace_topic(4) in there.relayed, what="the next")
    assert asked == [False, True]


async def test_what_cannot_be_sent_is_dropped_and_the_next_is_sent(database_url: str) -> None:
    async with serving(database_url) as here, serving(database_url) as there:
        with pytest.MonkeyPatch.context() as patch:
            asked = asyncio.Event()

            async def fail(*_: object) -> bool:
                asked.set()
                raise DatabaseUnreachable("planted")

            patch.setattr(notifications, "others_listen", fail)
            here.hints.give([namespace_topic(1)])
            await asyncio.wait_for(asked.wait(), 20)
        here.hints.give([namespace_topic(2)])
        await wait_until_async(lambda: namespace_topic(2) in there.relayed, what="the next hint")
