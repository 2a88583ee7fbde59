"""How fast the next fires of cron schedules are found, and how much is kept of them.

Held against bare croniter in the same run, in turns, on the wall clock: it knows no changes of clocks there,
which is less than we do. Cold: every question is new. Warm: many schedules share few expressions and ask for
the same instants, as a fleet does. In a row: one schedule is followed on. What is kept must not grow with
the questions.
"""

from __future__ import annotations

import time
import tracemalloc
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice

from croniter import croniter

from bench.figure import Aim, Context, Figure, Limit, Line
from hetuflow_core.schedule import Dst, cron_occurrences

_EXPRESSIONS = (
    "*/5 * * * *",
    "0 2 * * *",
    "30 8-18 * * MON-FRI",
    "0 9 1 * *",
    "0 0 * * MON#1",
    "*/10 * * * * *",
)
_ZONE = "Europe/Berlin"
_START = datetime(2026, 1, 1, tzinfo=UTC)
_BATCH = 60
_FASTER = Aim(2, at_least=True)
_MUCH_FASTER = Aim(20, at_least=True)
_FLAT = Aim(1.25, at_least=False)
_FEW_QUESTIONS, _MANY_QUESTIONS = 10_000, 40_000
_MIB = 1024 * 1024


def measure(context: Context) -> Figure:
    ways = {
        "cold": (_cold, _croniter_cold, _FASTER),
        "warm": (_warm, _croniter_cold, _MUCH_FASTER),
        "in a row": (_in_a_row, _croniter_in_a_row, _FASTER),
    }
    ours: dict[str, list[float]] = {way: [] for way in ways}
    theirs: dict[str, list[float]] = {way: [] for way in ways}
    for repetition in range(context.pace.repetitions):
        context.say(f"schedule arithmetic, repetition {repetition + 1}")
        for way, (our, their, _) in ways.items():
            ours[way].append(_rate(our, context.pace.seconds / 3))
            theirs[way].append(_rate(their, context.pace.seconds / 3))
    lines = [
        Line(f"next fires, {way}", "fires/s", ours[way], Limit(f"croniter {way}", theirs[way]), aim)
        for way, (_, _, aim) in ways.items()
    ]
    context.say("schedule arithmetic, what is kept")
    few, many = _kept(_FEW_QUESTIONS), _kept(_MANY_QUESTIONS)
    what = "kept after {:,} different questions".format
    lines.append(
        Line(what(_MANY_QUESTIONS), "MiB", [many], Limit(what(_FEW_QUESTIONS), [few]), _FLAT),
    )
    return Figure("schedule-arithmetic", lines)


def _rate(work: Callable[[], Iterator[int]], seconds: float) -> float:
    """`work` yields how many fires it has found since it last did."""
    began, fires = time.perf_counter(), 0
    for found in work():
        fires += found
        if time.perf_counter() - began > seconds:
            break
    return fires / (time.perf_counter() - began)


def _questions() -> Iterator[tuple[str, datetime]]:
    after = _START + timedelta(microseconds=time.monotonic_ns() % 1_000_000)
    while True:
        for cron in _EXPRESSIONS:
            yield cron, after
        after += timedelta(minutes=7)


def _cold() -> Iterator[int]:
    questions = _questions()
    while True:
        for cron, after in islice(questions, _BATCH):
            next(cron_occurrences(cron, _ZONE, Dst(), after))
        yield _BATCH


def _croniter_cold() -> Iterator[int]:
    questions = _questions()
    while True:
        for cron, after in islice(questions, _BATCH):
            croniter(cron, after.replace(tzinfo=None), second_at_beginning=True).get_next(datetime)
        yield _BATCH


def _warm() -> Iterator[int]:
    questions = list(islice(_questions(), _BATCH))
    while True:
        for cron, after in questions:
            next(cron_occurrences(cron, _ZONE, Dst(), after))
        yield _BATCH


def _in_a_row() -> Iterator[int]:
    start = _START + timedelta(microseconds=time.monotonic_ns() % 1_000_000)
    fires = [cron_occurrences(cron, _ZONE, Dst(), start) for cron in _EXPRESSIONS]
    while True:
        for one in fires:
            for _ in islice(one, _BATCH):
                pass
        yield _BATCH * len(fires)


def _croniter_in_a_row() -> Iterator[int]:
    start = _START.replace(tzinfo=None)
    fires = [croniter(cron, start, second_at_beginning=True) for cron in _EXPRESSIONS]
    while True:
        for one in fires:
            for _ in range(_BATCH):
                one.get_next(datetime)
        yield _BATCH * len(fires)


def _kept(questions: int) -> float:
    """MiB held by what was remembered; the same caches are filled again, so each call starts from full."""
    tracemalloc.start()
    try:
        for cron, after in islice(_questions(), questions):
            next(cron_occurrences(cron, _ZONE, Dst(), after))
        return tracemalloc.get_traced_memory()[0] / _MIB
    finally:
        tracemalloc.stop()
