"""Waiting for tasks and following logs, with servers that come and go."""

from __future__ import annotations

from typing import Any
from uuid import UUID

import msgspec
import pytest

from hetuflow_core.client.exchange import NoAnswer
from hetuflow_core.client.log_following import PATIENCE_SECONDS, LogEnd, LogPiece, follow_logs
from hetuflow_core.client.retry import TRIES
from hetuflow_core.client.task_waiting import follow, wait, watch
from hetuflow_core.errors import HetuflowError, NotFound, ServerUnreachable
from hetuflow_core.resources.tasks import TaskInstance
from tests.unit.client.plan_script import REFUSED, URL, Script, good, problem, streamed
from tests.unit.client.test_operations import AT, ID, a_task

DROPPED = NoAnswer(URL, "connection reset by peer")


def log(position: int, text: str, stream: str = "stdout") -> bytes:
    data = msgspec.json.encode({"stream": stream, "offset": position, "text": text}).decode()
    return f"id: p{position}\nevent: log\ndata: {data}\n\n".encode()


END = b'event: end\ndata: {"status": "succeeded", "exit_code": 0}\n\n'


def an_instance(seq: int, status: str) -> TaskInstance:
    values: dict[str, Any] = dict.fromkeys(TaskInstance.__struct_fields__)
    values |= {"id": UUID(int=seq), "task_id": ID, "seq": seq, "attempt": seq, "status": status}
    values |= {"priority": 500, "due_at": AT, "cancel_requested": False}
    return TaskInstance(**values)


def test_wait_looks_until_the_task_has_ended() -> None:
    script = Script(*(good(a_task(status=status)) for status in ("pending", "running", "failed")))
    assert script.play(wait(ID)).status == "failed"
    assert len(script.pauses) == 2


def test_wait_looks_less_often_the_longer_it_takes_but_never_seldom() -> None:
    script = Script(*[good(a_task(status="running"))] * 20, good(a_task(status="succeeded")))
    script.play(wait(ID))
    lengths = [pause.least for pause in script.pauses]
    assert lengths == sorted(lengths)
    assert (lengths[0], lengths[-1]) == (0.1, 1.0)


def test_wait_gives_up_in_time() -> None:
    script = Script(*[good(a_task(status="running"))] * 50)
    with pytest.raises(TimeoutError, match="not ended within 5 seconds"):
        script.play(wait(ID, timeout=5))
    assert script.now <= 1_005


def test_wait_bears_a_server_restart() -> None:
    script = Script(good(a_task(status="running")), *[REFUSED] * TRIES * 3, good(a_task(status="succeeded")))
    assert script.play(wait(ID)).status == "succeeded"


def test_wait_does_not_bear_a_server_that_was_never_there() -> None:
    script = Script(*[REFUSED] * TRIES)
    with pytest.raises(ServerUnreachable):
        script.play(wait(ID))


def test_wait_gives_a_server_up_at_last() -> None:
    script = Script(good(a_task(status="running")), *[REFUSED] * 1_000)
    with pytest.raises(ServerUnreachable):
        script.play(wait(ID))
    assert PATIENCE_SECONDS <= script.now - 1_000 < 2 * PATIENCE_SECONDS


def test_a_log_is_followed_to_its_end() -> None:
    script = Script(streamed([b": hello\n\n", log(0, "a\n"), log(2, "b\n", "stderr") + END]))
    script.play(follow_logs(ID))
    assert script.emitted == [
        LogPiece("stdout", 0, "a\n"),
        LogPiece("stderr", 2, "b\n"),
        LogEnd("succeeded", 0),
    ]
    assert "Last-Event-ID" not in script.asked[0].headers


@pytest.mark.parametrize("interruption", [[], [DROPPED], [NoAnswer(URL, "silence", timed_out=True)]])
def test_a_broken_connection_is_taken_up_where_it_broke(interruption: list[NoAnswer]) -> None:
    half = log(4, "lost")[:10]
    script = Script(
        streamed([log(0, "a"), half, *interruption]),
        DROPPED,
        problem(503, {"retry-after": "1"}),
        streamed([log(4, "b"), END]),
    )
    script.play(follow_logs(ID))
    assert [item.text for item in script.emitted[:-1]] == ["a", "b"]
    assert [request.headers.get("Last-Event-ID") for request in script.asked] == [None, "p0", "p0", "p0"]


def test_a_log_that_does_not_exist_is_told_at_once() -> None:
    with pytest.raises(NotFound):
        Script(problem(404, detail="No such instance.")).play(follow_logs(ID))
    with pytest.raises(ServerUnreachable):
        Script(REFUSED).play(follow_logs(ID))


def test_a_refusal_in_the_middle_ends_it() -> None:
    with pytest.raises(NotFound):
        Script(streamed([log(0, "a")]), problem(404, detail="Gone.")).play(follow_logs(ID))


def test_a_server_that_only_hangs_up_is_given_up() -> None:
    script = Script(streamed([b": x\n\n"]), *[DROPPED] * 1_000)
    with pytest.raises(ServerUnreachable):
        script.play(follow_logs(ID))
    assert script.now - 1_000 < 2 * PATIENCE_SECONDS


def test_an_event_that_cannot_be_read_is_an_error_and_an_unknown_one_is_not() -> None:
    script = Script(streamed([b"event: novelty\ndata: ?\n\n", END]))
    script.play(follow_logs(ID))
    assert script.emitted == [LogEnd("succeeded", 0)]
    with pytest.raises(HetuflowError, match="client expects"):
        Script(streamed([b"event: log\ndata: ?\n\n"])).play(follow_logs(ID))


def test_following_a_task_shows_every_attempt_once() -> None:
    first, second = an_instance(1, "running"), an_instance(2, "pending")
    script = Script(
        good(a_task(instances=[first])),
        streamed([log(0, "one"), END]),
        good(a_task(status="waiting_retry", instances=[first])),
        good(a_task(instances=[first, second])),
        streamed([log(0, "two"), END]),
        good(a_task(status="succeeded", instances=[first, second])),
    )
    script.play(follow(ID))
    shown = [item.text for item in script.emitted if isinstance(item, LogPiece)]
    assert shown == ["one", "two"]
    assert [item.seq for item in script.emitted if isinstance(item, TaskInstance)] == [1, 2]
    assert script.emitted[-1].status == "succeeded"


def test_watching_a_task_tells_only_of_changes() -> None:
    looks = ["pending", "pending", "running", "running", "succeeded"]
    script = Script(*(good(a_task(status=status)) for status in looks))
    script.play(watch(ID))
    assert [task.status for task in script.emitted] == ["pending", "running", "succeeded"]


def test_following_from_the_newest_attempt_on_shows_its_last_lines_and_all_of_the_next() -> None:
    first, second, third = an_instance(1, "failed"), an_instance(2, "running"), an_instance(3, "running")
    script = Script(
        good(a_task(status="running", instances=[first, second])),
        streamed([log(9, "late"), END]),
        good(a_task(status="running", instances=[first, second, third])),
        streamed([log(0, "whole"), END]),
        good(a_task(status="succeeded", instances=[first, second, third])),
    )
    script.play(follow(ID, "stdout", newest=True, tail=1))
    assert [item.text for item in script.emitted if isinstance(item, LogPiece)] == ["late", "whole"]
    streams = [request for request in script.asked if request.path.endswith("/stream")]
    assert [request.path.split("/")[2] for request in streams] == [str(second.id), str(third.id)]
    assert [request.query for request in streams] == [
        (("stream", "stdout"), ("tail", "1")),
        (("stream", "stdout"),),
    ]
