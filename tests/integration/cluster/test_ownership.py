"""Ownership of namespaces: it is proved in every transaction, and what was lost is forgotten."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import pytest

from hetuflow_server.cluster import bindings_store
from hetuflow_server.cluster.bindings_store import Move
from hetuflow_server.cluster.ownership import NotOwner, Ownership
from tests.support.cluster.owner_roles import bind_all, register
from tests.support.queue.engine import Engine


class Servers:
    """One that owns the namespaces 1 and `other`, and a rival."""

    def __init__(self, engine: Engine, here: UUID, there: UUID) -> None:
        self.engine, self.there = engine, there
        self.ownership = Ownership(engine.database, here)
        self.other: int = engine.one("SELECT id FROM sched_namespace WHERE name = 'other'")["id"]

    async def move(self, namespace_id: int, to: UUID) -> None:
        async with self.engine.database.transaction() as connection:
            epoch = self.engine.one(
                "SELECT epoch FROM sched_namespace_binding WHERE namespace_id = %s", namespace_id
            )["epoch"]
            assert await bindings_store.rebind(connection, Move(namespace_id, to, epoch))

    async def move_away_and_back(self, namespace_id: int) -> None:
        await self.move(namespace_id, self.there)
        await self.move(namespace_id, self.ownership.server_id)


@pytest.fixture
async def servers(scheduling: Engine) -> Servers:
    scheduling.rows.execute("INSERT INTO sched_namespace (name) VALUES ('other')")
    here, there = [await register(scheduling.database) for _ in range(2)]
    await bind_all(scheduling.database, here)
    return Servers(scheduling, here, there)


async def act(ownership: Ownership, *namespaces: int) -> bool:
    try:
        async with ownership.transaction(*namespaces):
            return True
    except NotOwner:
        return False


async def test_nothing_is_done_for_a_namespace_that_is_not_known_to_be_owned(servers: Servers) -> None:
    ownership = servers.ownership
    assert not await act(ownership, 1), "it has not looked yet"
    await servers.move(servers.other, servers.there)
    await ownership.refresh()
    assert await act(ownership, 1)
    assert not await act(ownership, servers.other)
    assert not await act(ownership, 1, servers.other)
    assert ownership.owned == {1: 1}


async def test_one_that_was_lost_ends_a_transaction_of_several_and_is_forgotten_alone(
    servers: Servers,
) -> None:
    ownership = servers.ownership
    await ownership.refresh()
    assert await act(ownership, 1, servers.other)
    await servers.move(servers.other, servers.there)
    assert not await act(ownership, 1, servers.other)
    assert ownership.owned == {1: 1}
    assert await act(ownership, 1)


async def test_one_that_came_back_is_not_forgotten_for_the_time_that_is_over(
    servers: Servers, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It went to another server and back while a transaction of its first time was about to begin."""
    ownership, prove = servers.ownership, bindings_store.prove
    await ownership.refresh()

    async def after_it_came_back(*arguments: Any) -> set[int]:
        await servers.move_away_and_back(1)
        await ownership.refresh()
        return await prove(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(bindings_store, "prove", after_it_came_back)
        assert not await act(ownership, 1), "what was planned in its first time is not done in its second"
    assert ownership.owned[1] == 3
    assert await act(ownership, 1)


async def test_who_wants_to_know_is_called_when_something_was_gained_and_only_then(servers: Servers) -> None:
    """Also of one that went and came back between two looks: another may have left work undone."""
    ownership, calls = servers.ownership, list[dict[int, int]]()
    ownership.when_gained(lambda: calls.append(dict(ownership.owned)))
    await ownership.refresh()
    both = {1: 1, servers.other: 1}
    assert calls == [both]
    await ownership.refresh()
    assert calls == [both]
    await servers.move(servers.other, servers.there)
    await ownership.refresh()
    assert (calls, dict(ownership.owned)) == ([both], {1: 1})
    await servers.move_away_and_back(1)
    await ownership.refresh()
    assert calls == [both, {1: 3}]
