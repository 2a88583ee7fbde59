"""Capacity at the edges: what a claim holds back beside what it takes, and what its end lets go."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hetuflow_core.limits import Scope
from hetuflow_core.resources.tasks import RunRequest
from tests.support.queue.claiming_engine import DEFAULT, Engine, engine_on


@pytest.fixture
async def engine(fresh_database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(fresh_database_url) as engine:
        yield engine


async def test_a_key_that_gave_all_that_was_wanted_holds_nobody(engine: Engine) -> None:
    """There may be more of it: whoever asks next finds that out."""
    await engine.run(await engine.job(concurrency={"max": 2, "key": "k"}), *[RunRequest()] * 3)
    first = await engine.claim(1)
    assert sorted(engine.statuses()) == ["pending", "pending", "reserved"]
    second = await engine.claim(1)
    assert (len(first), len(second)) == (1, 1)
    assert await engine.claim(1) == []
    assert sorted(engine.statuses()) == ["held", "reserved", "reserved"]


async def test_a_key_lets_as_many_go_as_have_room(engine: Engine) -> None:
    await engine.run(await engine.job(concurrency={"max": 3, "key": "k"}), *[RunRequest()] * 7)
    claimed = await engine.claim()
    assert (len(claimed), engine.statuses().count("held")) == (3, 4)
    await engine.finish(*claimed[:2])
    assert sorted(engine.statuses()) == ["held", "held", "pending", "pending", "reserved"]
    assert len(await engine.claim()) == 2
    await engine.all_is_well()


@pytest.mark.parametrize("how", ["ended", "released"])
async def test_another_server_gives_back_what_it_never_took(
    engine: Engine, fresh_database_url: str, how: str
) -> None:
    """It has not met the class before, and so not the limits it counts against."""
    await engine.limit("tool:x", 1)
    job = await engine.job(limits=["tool:x"], concurrency={"max": 5})
    await engine.run(job)
    (claimed,) = await engine.claim()
    assert engine.in_use() == {"job": 1, "tool": 1}
    async with engine_on(fresh_database_url) as other:
        await (other.finish(claimed) if how == "ended" else other.release(claimed))
    assert engine.in_use() == {"job": 0, "tool": 0}


async def test_only_keys_with_room_are_mended_and_counted(engine: Engine) -> None:
    """Between the look and the repair somebody may have taken what was free, or its job allows fewer now."""
    spec: dict[str, Any] = {"params": {"who": ""}}
    job = await engine.job("a", concurrency={"max": 2, "key": "{{ params.who }}"}, **spec)
    await engine.run(job, *[RunRequest(params={"who": "a"})] * 3, RunRequest(params={"who": "b"}))
    await engine.claim()
    await engine.job("a", concurrency={"max": 1, "key": "{{ params.who }}"}, **spec)
    found = engine.rows.execute("SELECT scope FROM sched_limit WHERE scope LIKE 'key:%' ORDER BY in_use DESC")
    crowded, level = [Scope(DEFAULT, name) for (name,) in found.fetchall()]
    for in_use, mended in ((2, 0), (1, 0), (0, 1)):
        engine.rows.execute("UPDATE sched_limit SET in_use = %s WHERE scope = %s", [in_use, crowded.name])
        async with engine.database.transaction() as connection:
            assert await engine.capacity.repair(connection, [crowded, level]) == mended
        assert engine.statuses().count("held") == 1 - mended
    engine.rows.execute("UPDATE sched_limit SET in_use = 0 WHERE scope = %s", [level.name])
    async with engine.database.transaction() as connection:
        assert await engine.capacity.repair(connection, [level]) == 0, "it held nobody"
