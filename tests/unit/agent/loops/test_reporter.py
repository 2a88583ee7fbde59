"""What the reporter says, in which order, and until when."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator, Callable, Sequence
from uuid import UUID, uuid4

import pytest

from hetuflow_agent.attempt.claims import Claims
from hetuflow_agent.gateway import Session, Unanswered
from hetuflow_agent.loops.reporter import MOST_PER_REQUEST, Reporter, gathering_delay
from hetuflow_core.errors import HetuflowError, Invalid, ServerUnreachable
from hetuflow_core.messages import (
    Finish,
    Poll,
    Polled,
    ReportOutcome,
    ReportResult,
    Reports,
    ReportsTaken,
    Start,
)
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.timers import Timers
from hetuflow_core.states import InstanceStatus


class Wire:
    """Takes every report, unless `refuse` minds the request."""

    def __init__(self) -> None:
        self.requests: list[Reports] = []
        self.refuse: Callable[[Reports], HetuflowError | None] = lambda _: None

    async def reports(self, request: Reports) -> ReportsTaken:
        self.requests.append(request)
        error = self.refuse(request)
        if error is not None:
            raise error
        results = [ReportResult(each.instance_id, ReportOutcome.OK) for each in request.reports]
        return ReportsTaken(0, results)


class Logs:
    """Whose logs are shipped: all but those in `behind`."""

    def __init__(self) -> None:
        self.behind: set[UUID] = set()
        self.told: list[UUID] = []

    def drained(self, token: UUID) -> bool:
        return token not in self.behind

    async def taken(self, tokens: Sequence[UUID]) -> list[UUID]:
        self.told += tokens
        return [token for token in tokens if token in self.behind]


class Records:
    def __init__(self) -> None:
        self.taken: list[UUID] = []

    async def mark_taken(self, tokens: Sequence[UUID]) -> None:
        self.taken += tokens


class Impatient(random.Random):
    def uniform(self, a: float, b: float) -> float:
        return a


class Scene:
    def __init__(self, timers: Timers) -> None:
        self.wire, self.logs, self.records, self.claims = Wire(), Logs(), Records(), Claims()
        self.reporter = Reporter(
            self.wire,  # type: ignore[arg-type]  # stand-ins
            Session(uuid4()),
            self.records,  # type: ignore[arg-type]
            self.logs,  # type: ignore[arg-type]
            self.claims,
            timers=timers,
            rng=Impatient(),
            stop_budget=0.2,
        )

    def submit(self, count: int = 1) -> list[Finish]:
        finishes = [Finish(uuid4(), uuid4(), InstanceStatus.SUCCEEDED) for _ in range(count)]
        for finish in finishes:
            self.claims.hold(finish.instance_id, finish.token)
            self.reporter.submit(finish)
        return finishes

    def reported(self) -> list[UUID]:
        return [each.token for request in self.wire.requests for each in request.reports]


@pytest.fixture
async def scene() -> AsyncIterator[Scene]:
    timers = Timers(SystemClock())
    await timers.start()
    yield Scene(timers)
    await timers.stop()


async def test_results_go_in_batches_and_are_held_until_answered(scene: Scene) -> None:
    finishes = scene.submit(MOST_PER_REQUEST + 3)
    assert await scene.reporter.send_results() == MOST_PER_REQUEST
    assert len(scene.claims) == 3
    assert await scene.reporter.send_results() == 3
    assert await scene.reporter.send_results() == 0
    assert scene.reported() == [finish.token for finish in finishes]
    assert len(scene.claims) == 0


async def test_a_result_without_an_answer_is_reported_again(scene: Scene) -> None:
    (finish,) = scene.submit()
    scene.wire.refuse = lambda _: Unanswered("gone")
    for _ in range(3):
        await scene.reporter.send_results()
    assert scene.claims.holds(finish.token)
    scene.wire.refuse = lambda _: None
    await scene.reporter.send_results()
    assert scene.reported() == [finish.token] * 4
    assert not scene.claims.holds(finish.token)


async def test_a_result_waits_for_its_log_but_holds_up_no_other(scene: Scene) -> None:
    first, second = scene.submit(2)
    scene.logs.behind = {first.token}
    await scene.reporter.send_results()
    assert scene.reported() == [second.token]
    scene.logs.behind = set()
    await scene.reporter.send_results()
    assert scene.reported() == [second.token, first.token]


async def test_when_stopping_no_result_waits_for_its_log(scene: Scene) -> None:
    (finish,) = scene.submit()
    scene.logs.behind = {finish.token}
    await scene.reporter.stop()
    assert scene.reported() == [finish.token]
    assert scene.records.taken == [finish.token]


async def test_stopping_does_not_wait_for_ever_for_a_server(scene: Scene) -> None:
    scene.submit()
    scene.wire.refuse = lambda _: Unanswered("gone")
    await asyncio.wait_for(scene.reporter.stop(), 5)
    assert len(scene.claims) == 1


async def test_one_report_the_server_cannot_take_does_not_block_the_others(scene: Scene) -> None:
    finishes = scene.submit(20)
    poison = finishes[7].token
    scene.wire.refuse = lambda request: (
        Invalid("bad") if any(each.token == poison for each in request.reports) else None
    )
    for _ in range(40):
        await scene.reporter.send_results()
    await scene.reporter.cleared_away()
    assert sorted(scene.logs.told) == sorted(finish.token for finish in finishes)
    assert len(scene.claims) == 0


async def test_starts_that_arrive_together_share_a_request(scene: Scene) -> None:
    reporter = scene.reporter
    waiting = [asyncio.create_task(reporter.commit_start(uuid4(), uuid4())) for _ in range(5)]
    await asyncio.sleep(0)
    assert await reporter.send_starts() == 5
    assert await asyncio.gather(*waiting) == [ReportOutcome.OK] * 5
    assert [len(request.reports) for request in scene.wire.requests] == [5]
    assert all(isinstance(each, Start) for each in scene.wire.requests[0].reports)


class Errands:
    """A question for every request; work ends and is under way as told."""

    def __init__(self) -> None:
        self.asked: list[Poll] = []
        self.heard: list[tuple[Poll, Polled | None]] = []
        self.idle = 0
        self.per_second = 0.0
        self.more = 0

    def attached_poll(self) -> Poll:
        self.asked.append(Poll(uuid4(), uuid4(), free_slots=1, wait_ms=0))
        return self.asked[-1]

    def on_attached_answer(self, poll: Poll, answer: Polled | None) -> None:
        self.heard.append((poll, answer))

    def ends_per_second(self) -> float:
        return self.per_second

    def under_way(self) -> int:
        return self.more

    def note_idle(self) -> None:
        self.idle += 1


async def test_results_go_along_with_starts_and_a_question_with_both(scene: Scene) -> None:
    errands = Errands()
    scene.reporter.attach(errands)
    (finish,) = scene.submit()
    waiting = asyncio.create_task(scene.reporter.commit_start(uuid4(), uuid4()))
    await asyncio.sleep(0)
    assert await scene.reporter.send_starts() == 1
    assert await waiting is ReportOutcome.OK
    assert await scene.reporter.send_results() == 0, "it went along"
    (request,) = scene.wire.requests
    assert (len(request.reports), request.reports[1], request.poll) == (2, finish, errands.asked[0])
    assert (errands.heard, errands.idle) == ([(errands.asked[0], None)], 1)
    assert not scene.claims.holds(finish.token)


@pytest.mark.parametrize(
    ("took", "per_second", "seconds"),
    [
        (0.030, 50, 0.0),
        (0.0, 51, 0.012),
        (0.030, 51, 0.030),
        (0.400, 399, 0.050),
        (0.0, 400, 0.080),
        (0.0, 1_000, 0.032),
        (0.040, 1_000, 0.040),
        (0.0, 10_000, 0.012),
    ],
)
def test_reports_wait_for_company_as_long_as_a_request_takes_or_until_enough_are_together(
    took: float, per_second: float, seconds: float
) -> None:
    assert gathering_delay(took, per_second) == seconds


@pytest.mark.parametrize(("under_way", "sent_by"), [(1_000, 63), (70, 63), (3, 2)])
async def test_reports_that_wait_go_once_enough_are_together_or_no_more_can_come(
    scene: Scene, monkeypatch: pytest.MonkeyPatch, under_way: int, sent_by: int
) -> None:
    monkeypatch.setattr("hetuflow_agent.loops.reporter.gathering_delay", lambda *_: 3600.0)
    errands = Errands()
    errands.more = under_way
    scene.reporter.attach(errands)
    sending: asyncio.Task[int] | None = None
    for number in range(under_way):
        errands.more -= 1
        scene.submit()
        if sending is None:
            sending = asyncio.create_task(scene.reporter.send_results())
        for _ in range(5):
            await asyncio.sleep(0)
        if sending.done():
            assert number == sent_by
            break
    assert sending is not None
    assert await sending == min(under_way, 64)


async def test_starts_wait_for_half_as_many_whatever_waits_for_its_log(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hetuflow_agent.loops.reporter.gathering_delay", lambda *_: 3600.0)
    errands = Errands()
    errands.more = 1_000
    scene.reporter.attach(errands)
    scene.logs.behind = {finish.token for finish in scene.submit(100)}
    waiting = [asyncio.create_task(scene.reporter.commit_start(uuid4(), uuid4())) for _ in range(31)]
    await asyncio.sleep(0)
    sending = asyncio.create_task(scene.reporter.send_starts())
    for _ in range(5):
        await asyncio.sleep(0)
    scene.logs.behind |= {finish.token for finish in scene.submit()}
    for _ in range(5):
        await asyncio.sleep(0)
    assert not scene.wire.requests
    waiting.append(asyncio.create_task(scene.reporter.commit_start(uuid4(), uuid4())))
    assert await sending == 32
    assert await asyncio.gather(*waiting) == [ReportOutcome.OK] * 32


async def test_results_that_are_ready_are_company_for_a_start(
    scene: Scene, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They wait for it, and nothing new is asked for meanwhile: the line at the keeper would run dry."""
    monkeypatch.setattr("hetuflow_agent.loops.reporter.gathering_delay", lambda *_: 3600.0)
    errands = Errands()
    errands.more = 1_000
    scene.reporter.attach(errands)
    start = asyncio.create_task(scene.reporter.commit_start(uuid4(), uuid4()))
    await asyncio.sleep(0)
    sending = asyncio.create_task(scene.reporter.send_starts())
    scene.submit(63)
    for _ in range(5):
        await asyncio.sleep(0)
    assert not scene.wire.requests
    scene.submit()
    async with asyncio.timeout(10):
        assert await sending == 1
    assert await start is ReportOutcome.OK
    (request,) = scene.wire.requests
    assert len(request.reports) == 65


async def test_a_result_the_server_cannot_take_holds_up_no_start(scene: Scene) -> None:
    (finish,) = scene.submit()
    scene.wire.refuse = lambda request: Invalid("bad") if finish in request.reports else None
    waiting = asyncio.create_task(scene.reporter.commit_start(uuid4(), uuid4()))
    await asyncio.sleep(0)
    await scene.reporter.send_starts()
    assert await waiting is ReportOutcome.OK
    assert scene.claims.holds(finish.token), "the other lane finds out about it"


async def test_whoever_asks_for_a_start_hears_that_nobody_answered(scene: Scene) -> None:
    scene.wire.refuse = lambda _: Unanswered("gone")
    waiting = asyncio.create_task(scene.reporter.commit_start(uuid4(), uuid4()))
    await asyncio.sleep(0)
    await scene.reporter.send_starts()
    with pytest.raises(ServerUnreachable):
        await waiting
