"""Of what hosts say within a minute one sample is kept."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from uuid import uuid4

from hetuflow_core.messages import HostUsage
from hetuflow_server.agents.usage import HostSamples

NOON = datetime(2026, 7, 1, 12, 0, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def usage(cpu: float, *, load: float = 1.0, free: int = 100, disk: int = 1000, total: int = 500) -> HostUsage:
    return HostUsage(cpu, load, total, free, disk)


def test_a_minute_is_its_means_and_the_least_that_was_free() -> None:
    samples, first, second = HostSamples(), *sorted((uuid4(), uuid4()))
    assert samples.take(NOON) is None
    samples.note(second, usage(1.0))
    for told in (usage(10.0, load=1.0, free=300, disk=7), usage(50.0, load=4.0, free=100, disk=9, total=501)):
        samples.note(first, told)
    assert samples.take(NOON + 59 * SECOND) is None
    samples.note(first, usage(60.0, load=4.0, free=200, disk=8, total=501))
    assert samples.take(NOON + 61 * SECOND) == (
        NOON,
        [(first, usage(40.0, load=3.0, free=100, disk=7, total=501)), (second, usage(1.0))],
    )
    assert samples.take(NOON + 62 * SECOND) is None


def test_a_silent_minute_has_no_samples_and_takes_none_of_the_next() -> None:
    samples, agent = HostSamples(), uuid4()
    samples.take(NOON)
    assert samples.take(NOON + 60 * SECOND) is None
    samples.note(agent, usage(5.0))
    assert samples.take(NOON + 61 * SECOND) is None
    assert samples.take(NOON + 120 * SECOND) == (NOON + 60 * SECOND, [(agent, usage(5.0))])


def test_a_clock_that_is_set_back_keeps_what_was_said() -> None:
    samples, agent = HostSamples(), uuid4()
    samples.take(NOON)
    samples.note(agent, usage(5.0))
    assert samples.take(NOON - 300 * SECOND) is None
    assert samples.take(NOON - 240 * SECOND) == (NOON - 300 * SECOND, [(agent, usage(5.0))])
