"""Hints between servers: they arrive, they are not echoed, and a lost connection is made up for."""

from __future__ import annotations

from collections.abc import AsyncIterator, Collection
from contextlib import asynccontextmanager
from datetime import timedelta
from uuid import uuid4

import psycopg
import pytest

from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.store.database import Database
from hetuflow_server.stream.hints import (
    Hints,
    Topic,
    agent_topic,
    daemons_topic,
    events_topic,
    head_topic,
    namespace_topic,
)
from hetuflow_server.stream.relay import EVERYTHING, Relay
from tests.support.waiting import wait_until_async


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
        here.hints.give([namespace_topic(7), agent_topic(agent)])
        wanted = {EVERYTHING, namespace_topic(7), agent_topic(agent)}
        await wait_until_async(lambda: set(there.relayed) == wanted, what="the hints")
        there.hints.give([namespace_topic(8)])
        await wait_until_async(lambda: namespace_topic(8) in here.relayed, what="the answer")
        assert namespace_topic(7) not in here.relayed


async def test_every_kind_of_news_reaches_the_other_server(database_url: str) -> None:
    """A head as its namespace, for whoever is there knows nothing of it; agents as many as there are."""
    agents = {agent_topic(uuid4()) for _ in range(300)}
    async with serving(database_url) as here, serving(database_url) as there:
        here.hints.give([head_topic(3, 5, 500), daemons_topic(4), *agents])
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
    async with serving(database_url) as here, serving(database_url) as there:
        for n in range(1, count + 1):
            here.hints.give([namespace_topic(n)])
        await wait_until_async(
            lambda: {namespace_topic(n) for n in range(1, count + 1)} <= set(there.relayed),
            what="all hints",
        )
