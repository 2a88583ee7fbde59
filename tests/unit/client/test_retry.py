"""What is asked again, after how long, and what never is."""

from __future__ import annotations

import pytest

from hetuflow_core.client.exchange import Answer, NoAnswer, Pause, Request
from hetuflow_core.client.retry import TRIES, answered, pause_before_next, under_key
from hetuflow_core.errors import Conflict, HetuflowError, ServerUnreachable
from tests.unit.client.plan_script import REFUSED, URL, Script, good, problem

SAFE = Request("GET", "/jobs", repeatable=True)
UNSAFE = Request("POST", "/apply")
BUSY = problem(
    503, {"retry-after": "2"}, detail="The database is away: try again.", code="database.unreachable"
)


def test_a_safe_request_is_asked_until_it_is_answered() -> None:
    script = Script(REFUSED, BUSY, good(1))
    assert script.play(answered(SAFE)).body == b"1"
    assert script.asked == [SAFE] * 3


def test_pauses_grow_and_honour_what_the_server_wants() -> None:
    script = Script(REFUSED, REFUSED, BUSY, good(1))
    script.play(answered(SAFE))
    assert script.pauses == [Pause(0.0, 0.25), Pause(0.0, 0.5), Pause(2.0, 1.0)]


def test_it_gives_up_after_a_few_tries() -> None:
    script = Script(*[REFUSED] * TRIES)
    with pytest.raises(ServerUnreachable):
        script.play(answered(SAFE))
    assert script.replies == []


@pytest.mark.parametrize("reply", [REFUSED, BUSY])
def test_what_might_do_harm_twice_is_asked_once(reply: Answer | NoAnswer) -> None:
    script = Script(reply, good(1))
    with pytest.raises(ServerUnreachable):
        script.play(answered(UNSAFE))
    assert script.asked == [UNSAFE]
    assert script.pauses == []


@pytest.mark.parametrize(
    ("reply", "error"),
    [
        (problem(409, detail="No."), Conflict),
        (problem(500, detail="No."), HetuflowError),
        (problem(503, {"retry-after": "3600"}, detail="Later."), ServerUnreachable),
        (NoAnswer(URL, "it takes too long", timed_out=True), ServerUnreachable),
    ],
)
def test_what_asking_again_would_not_change_is_told_at_once(
    reply: Answer | NoAnswer, error: type[Exception]
) -> None:
    script = Script(reply)
    with pytest.raises(error):
        script.play(answered(SAFE))
    assert script.pauses == []


def test_jitter_has_a_ceiling() -> None:
    assert pause_before_next(REFUSED, 100) == Pause(0.0, 5.0)


@pytest.mark.parametrize("written", ["Wed, 21 Oct 2026 07:28:00 GMT", "-1", "1.5", "²", ""])
def test_other_forms_of_retry_after_do_not_hurt(written: str) -> None:
    assert pause_before_next(problem(429, {"retry-after": written}), 1) == Pause(0.0, 0.25)


def test_under_a_key_what_creates_is_asked_until_it_is_answered() -> None:
    in_flight = problem(409, {"retry-after": "1"}, detail="In flight.", code="idempotency_key.in_flight")
    script = Script(REFUSED, in_flight, good(1))
    assert script.play(under_key(answered(UNSAFE), "k")).body == b"1"
    assert [request.headers for request in script.asked] == [{"Idempotency-Key": "k"}] * 3
    assert script.pauses == [Pause(0.0, 0.25), Pause(1.0, 0.5)]


def test_under_a_key_other_calls_are_what_they_were() -> None:
    script = Script(REFUSED, good(1))
    assert script.play(under_key(answered(SAFE), "k")).body == b"1"
    assert script.asked == [SAFE] * 2
    refused = Script(problem(409, detail="No."))
    with pytest.raises(Conflict):
        refused.play(under_key(answered(UNSAFE), "k"))
