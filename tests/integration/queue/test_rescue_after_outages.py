"""Nothing is lost because the servers were away: leases begin anew, once, when nobody looked for too long."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest

from hetuflow_server.postgres.connection import Connection
from hetuflow_server.queue import store as queue_store
from hetuflow_server.queue.rescuer import Rescuer
from hetuflow_server.queue.rows import Claimed
from hetuflow_server.queue.store import RescueLook
from tests.support.cluster.owner_roles import owner_of_everything
from tests.support.queue.claiming_engine import DEFAULT, Engine, engine_on
from tests.support.queue.expired_claims import (
    JUST_OVER,
    another_namespace,
    nobody_looked_for,
    reserve_one,
    run_one,
    seconds_left,
    status_of,
    write,
)

RUNNING, LOST = ("running", None), ("lost", "lease_expired")


@pytest.fixture
async def engine(database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(database_url) as engine:
        yield engine


async def _rescue(engine: Engine) -> int:
    return sum([await engine.rescuer.run_once(one) for one in await engine.rescuer.look([DEFAULT])])


def _lease_until(engine: Engine, one: Claimed) -> datetime:
    row = engine.rows.execute(
        "SELECT lease_until FROM sched_task_instance WHERE id = %s", [one.id]
    ).fetchone()
    assert row is not None
    found: datetime = row[0]
    return found


def _looks_were(seconds: float, patch: pytest.MonkeyPatch) -> None:
    """Let every look be so long ago when the next one comes."""
    look_now = queue_store.look_for_rescue

    async def look_then(connection: Connection, namespaces: Sequence[int]) -> list[RescueLook]:
        found = await look_now(connection, namespaces)
        return [replace(one, at=one.at - timedelta(seconds=seconds)) for one in found]

    patch.setattr(queue_store, "look_for_rescue", look_then)


async def test_an_outage_gives_a_whole_lease_to_those_it_was_too_long_for(engine: Engine) -> None:
    """Longer than half of their lease, that is; nobody loses what is left of a lease."""
    short, long, lasting, elsewhere, reserved = (
        await run_one(engine, lease="20s"),
        await run_one(engine, lease="1m"),
        await run_one(engine, lease="20s"),
        await run_one(engine, lease="20s"),
        await reserve_one(engine, lease="20s"),
    )
    write(engine, elsewhere, namespace_id=another_namespace(engine), lease_until=JUST_OVER)
    write(engine, short, lease_until=JUST_OVER)
    write(engine, long, lease_until="clock_timestamp() + interval '3 s'")
    write(engine, lasting, lease_until="clock_timestamp() + interval '1 h'")
    nobody_looked_for(engine, 12)
    await engine.rescuer.look([DEFAULT])
    assert seconds_left(engine, short) == pytest.approx(20, abs=5)
    assert seconds_left(engine, long) == pytest.approx(3, abs=5)
    assert seconds_left(engine, lasting) == pytest.approx(3_600, abs=5)
    assert seconds_left(engine, elsewhere) == pytest.approx(-1, abs=5)
    assert seconds_left(engine, reserved) is None


@pytest.mark.parametrize(("away", "lease", "becomes"), [(2.5, "4s", RUNNING), (2.5, "6s", LOST)])
async def test_half_of_the_shortest_leases_counts_too(
    engine: Engine, away: float, lease: str, becomes: tuple[str, str | None]
) -> None:
    one = await run_one(engine, lease=lease)
    write(engine, one, lease_until=JUST_OVER)
    nobody_looked_for(engine, away)
    await _rescue(engine)
    assert status_of(engine, one) == becomes


async def test_a_look_counts_although_it_was_not_written_down(engine: Engine) -> None:
    """Notes are up to three seconds apart; else the shortest of leases would last twice as long."""
    one = await run_one(engine, lease="4s")
    await engine.rescuer.look([DEFAULT])
    write(engine, one, lease_until=JUST_OVER)
    nobody_looked_for(engine, 3)
    assert await _rescue(engine) == 1
    assert status_of(engine, one) == LOST


async def test_a_look_of_another_server_counts(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    """Who comes back to a namespace has looked long ago, and others have since."""
    one = await run_one(engine, lease="4s")
    _looks_were(60, monkeypatch)
    await engine.rescuer.look([DEFAULT])
    write(engine, one, lease_until=JUST_OVER)
    nobody_looked_for(engine, 1)
    assert await _rescue(engine) == 1
    assert status_of(engine, one) == LOST


async def test_who_looks_too_seldom_still_loses_what_is_lost(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lease begins anew once: only its agent can say that it goes on from then."""
    silent, heard = await run_one(engine, lease="4s"), await run_one(engine, lease="4s")
    write(engine, await reserve_one(engine), reserved_until=JUST_OVER)  # or there is nothing to note
    _looks_were(3, monkeypatch)

    async def look_late() -> None:
        nobody_looked_for(engine, 3)
        await engine.rescuer.look([DEFAULT])

    await look_late()
    given = _lease_until(engine, silent)
    assert seconds_left(engine, silent) == pytest.approx(4, abs=1)
    for _ in range(3):
        write(engine, heard, lease_until="clock_timestamp() + interval '3.5 s'")
        renewed = _lease_until(engine, heard)
        await look_late()
        assert _lease_until(engine, silent) == given
        assert _lease_until(engine, heard) > renewed


async def test_what_could_not_be_extended_is_extended_by_the_next_look(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    one = await run_one(engine, lease="4s")
    write(engine, one, lease_until=JUST_OVER)
    nobody_looked_for(engine, 3)
    extend = queue_store.extend_after_outage

    async def fail(*_: object) -> int:
        raise ConnectionError

    monkeypatch.setattr(queue_store, "extend_after_outage", fail)
    with pytest.raises(ConnectionError):
        await engine.rescuer.look([DEFAULT])
    monkeypatch.setattr(queue_store, "extend_after_outage", extend)
    assert await _rescue(engine) == 0
    assert status_of(engine, one) == RUNNING
    assert seconds_left(engine, one) == pytest.approx(4, abs=1)


async def test_a_server_stopped_between_its_look_and_its_rescue_loses_nothing(engine: Engine) -> None:
    """It does not know whether anybody was there to hear agents since, for those whose half lease it was."""
    short, long = await run_one(engine, lease="4s"), await run_one(engine, lease="8s")
    nobody_looked_for(engine, 0)
    for one in (short, long):
        write(engine, one, lease_until=JUST_OVER)
    assert await engine.rescuer.look([DEFAULT]) == [DEFAULT]
    nobody_looked_for(engine, 3)
    assert await engine.rescuer.run_once(DEFAULT) == 1
    assert [status_of(engine, one) for one in (short, long)] == [RUNNING, LOST]
    next_owner = Rescuer(
        engine.database, await owner_of_everything(engine.database), engine.finisher, engine.hints
    )
    nobody_looked_for(engine, 3)
    await next_owner.look([DEFAULT])
    assert seconds_left(engine, short) == pytest.approx(4, abs=1)
