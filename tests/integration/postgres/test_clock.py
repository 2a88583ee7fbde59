"""Servers go by the database's clock, however wrong the one of their host is."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from hetuflow_core.runtime.clock import ManualClock
from hetuflow_server.postgres.clock import ClockSetter, DatabaseClock
from hetuflow_server.postgres.database import Database

NOON = datetime(2026, 3, 1, 12, tzinfo=UTC)


async def test_it_is_set_before_anything_else_starts(database: Database) -> None:
    clock = DatabaseClock(ManualClock(NOON))
    await ClockSetter(database, clock).start()
    async with database.transaction() as connection:
        told = (await connection.execute("SELECT clock_timestamp()")).scalar_one()
    assert timedelta(0) <= told - clock.now() < timedelta(minutes=5), "never ahead of the database"


def test_the_host_is_asked_until_the_database_has_answered() -> None:
    host = ManualClock(NOON)
    assert DatabaseClock(host).now() == NOON


@pytest.mark.parametrize("step", [-3_600.0, 3_600.0])
def test_steps_of_the_hosts_clock_change_nothing(step: float) -> None:
    host = ManualClock(NOON)
    clock = DatabaseClock(host)
    there = NOON + timedelta(hours=5)
    clock.learn(there)
    host.step_wall(step)
    host.advance(10.0)
    assert clock.now() == there + timedelta(seconds=10)
    assert (clock.boottime(), clock.monotonic()) == (host.boottime(), host.monotonic())


def test_a_slow_answer_does_not_set_it_back_and_a_changed_database_does_in_the_end() -> None:
    host = ManualClock(NOON)
    clock = DatabaseClock(host)
    clock.learn(NOON)
    host.advance(2.0)
    clock.learn(NOON + timedelta(seconds=1))
    assert clock.now() > NOON + timedelta(seconds=1.99), "it was under way for a second"
    for seconds in range(4, 20, 2):
        host.advance(2.0)
        clock.learn(NOON + timedelta(seconds=seconds) - timedelta(hours=1))
    assert clock.now() == NOON + timedelta(seconds=18) - timedelta(hours=1)


def test_what_was_answered_long_ago_is_believed_less() -> None:
    """A clock nobody keeps drifts: the host's may have gained on the database's since."""
    host = ManualClock(NOON)
    clock = DatabaseClock(host)
    clock.learn(NOON)
    host.advance(10_000.0)
    told = NOON + timedelta(seconds=10_000 - 0.5)
    clock.learn(told)
    assert clock.now() == told
