"""What a batch tells in few words: all of it went as asked, or else which of it did."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import timedelta
from uuid import UUID, uuid4

import pytest
from msgspec import structs

from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.hints import BacklogEntry
from hetuflow_server.postgres.database import Lane
from hetuflow_server.queue import claim_transitions, transitions
from hetuflow_server.queue.rows import Claimed, Ending, Recipient, Succeeded
from tests.support.queue.claiming_engine import WHO, Engine, engine_on


@pytest.fixture
async def engine(fresh_database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(fresh_database_url) as engine:
        yield engine


async def claimed(engine: Engine, count: int, **spec: object) -> list[Claimed]:
    await engine.run(await engine.job(**spec), *[RunRequest()] * count)
    found = await engine.claim(count)
    assert len(found) == count
    return found


async def succeed(engine: Engine, *ends: Claimed, sum_up: bool = True, undo: bool = False) -> Succeeded:
    endings = [Ending(one.id, one.token, InstanceStatus.SUCCEEDED) for one in ends]
    async with engine.database.transaction(lane=Lane.PLANNED) as connection:
        done = await transitions.succeed(connection, endings, sum_up=sum_up)
        if undo:
            await connection.rollback()
    return done


async def test_ends_that_entail_nothing_are_counted_by_their_class(engine: Engine) -> None:
    await engine.limit("tool:x", 9)
    plain = await claimed(engine, 3)
    limited = await claimed(engine, 2, limits=["tool:x"])
    done = await succeed(engine, *plain, *limited, undo=True)
    assert done.each == []
    assert {(one.placement_id, one.number) for one in done.sums} == {
        (plain[0].placement_id, 3),
        (limited[0].placement_id, 2),
    }
    assert done.ended == {one.id for one in (*plain, *limited)}
    await engine.finish(*plain, *limited)
    assert engine.in_use() == {"tool": 0}
    assert [(await engine.task(one.task_id)).status for one in (*plain, *limited)] == ["succeeded"] * 5
    await engine.all_is_well()


async def test_an_end_that_entails_something_is_told_apart(engine: Engine) -> None:
    plain = await claimed(engine, 2)
    (keyed,) = await claimed(engine, 1, concurrency={"key": "one"})
    done = await succeed(engine, *plain, keyed)
    assert [one.id for one in done.each] == [keyed.id]
    assert [one.number for one in done.sums] == [2]


async def test_where_something_follows_every_end_is_told_apart(engine: Engine) -> None:
    ends = await claimed(engine, 2, name="before")
    await engine.job(schedules=[{"name": "next", "flow": {"after": ["before"], "on": "succeeded"}}])
    done = await succeed(engine, *ends)
    assert ({one.id for one in done.each}, done.sums) == ({one.id for one in ends}, [])
    assert all(one.followed for one in done.each)


async def test_who_wants_each_is_told_of_each(engine: Engine) -> None:
    ends = await claimed(engine, 2)
    done = await succeed(engine, *ends, sum_up=False)
    assert ({one.id for one in done.each}, done.sums) == ({one.id for one in ends}, [])


@pytest.mark.parametrize("whose", ["stranger", "twice"])
async def test_when_not_all_have_ended_it_is_told_which(engine: Engine, whose: str) -> None:
    mine, other = await claimed(engine, 2)
    wrong = mine if whose == "twice" else structs.replace(other, token=uuid4())
    done = await succeed(engine, mine, wrong)
    assert done.ended == {mine.id}
    assert ([one.id for one in done.each], done.sums) == ([mine.id], [])
    assert (await engine.task(other.task_id)).status != "succeeded"


async def test_of_starts_it_is_told_whether_all_or_which(engine: Engine) -> None:
    first, second, third = await claimed(engine, 3)
    assert await engine.start(first, second) == {first.id, second.id}
    assert await engine.start(second, third) == {third.id}
    assert await engine.start(first, second) == set()


async def test_of_rows_to_reserve_each_is_told_what_it_has_become(engine: Engine) -> None:
    told = await engine.job(
        name="told", run={"command": ["echo", "{{ params.of }}"]}, params={"of": "nothing"}
    )
    quiet = await engine.job(name="quiet")
    await engine.run(quiet, RunRequest())
    await engine.run(told, RunRequest(params={"of": "something"}))
    await engine.run(quiet, RunRequest())
    (gone,) = await engine.claim(1)
    await engine.release(gone)
    recipient = Recipient(uuid4(), uuid4(), uuid4())
    heads = [(BacklogEntry(1, gone.placement_id, 500), 3)]
    async with engine.database.transaction(lane=Lane.ASYNC_COMMIT) as connection:
        rows = await claim_transitions.lock_claimable(connection, heads, want=3, prefetch=timedelta(0))
        (before,) = await claim_transitions.reserve(connection, [(rows[0], recipient)])
        reserved = await claim_transitions.reserve(connection, [(row, recipient) for row in rows])
        await connection.rollback()
    assert before is not None
    assert reserved[0] is None, "it is reserved already"
    found = {one.task_id: one for one in reserved if one is not None}
    assert set(found) == {row.task_id for row in rows[1:]}
    assert [one.claim_no for one in (before, *found.values())] == [2, 1, 1]
    assert {id_: one.params for id_, one in found.items()} == {
        row.task_id: await _params(engine, row.task_id) for row in rows[1:]
    }


async def _params(engine: Engine, task_id: UUID) -> dict[str, object]:
    return (await engine.actions.task(WHO, task_id)).params
