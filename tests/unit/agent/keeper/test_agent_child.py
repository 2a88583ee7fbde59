"""When an agent that ended is started again by its keeper."""

from __future__ import annotations

import signal
import sys

import pytest

from hetuflow_agent.keeper.agent_child import AgentChild


def ended(code: int = 0, number: int = 0) -> int:
    """A wait status."""
    return code << 8 | number


@pytest.fixture
def child(monkeypatch: pytest.MonkeyPatch) -> AgentChild:
    monkeypatch.setattr("os.posix_spawn", lambda *_, **__: 4711)
    monkeypatch.setattr("os.kill", lambda *_: None)
    return AgentChild([sys.executable])


@pytest.mark.parametrize("code", [0, 9])
def test_one_that_ends_by_itself_is_over(child: AgentChild, code: int) -> None:
    assert child.start_if_due(10.0) == child.pid == 4711
    assert child.start_if_due(10.0) is None, "it is there"
    child.note_end(ended(code), 11.0)
    assert (child.over, child.exit_code, child.start_at) == (True, code, None)


def test_one_that_was_killed_comes_back_later_and_later_unless_it_was_well(child: AgentChild) -> None:
    child.start_if_due(10.0)
    pauses = []
    for _ in range(6):
        child.note_end(ended(number=signal.SIGKILL), 10.0)
        assert child.start_at is not None
        pauses.append(child.start_at - 10.0)
        child.start_if_due(10.0)
        assert child.pid is None, "not yet"
    assert pauses == [1, 2, 4, 8, 16, 30]
    child.start_if_due(100.0)
    child.note_end(ended(number=signal.SIGKILL), 200.0)
    assert child.start_at == 201.0


def test_one_that_was_asked_to_end_does_not_come_back(child: AgentChild) -> None:
    child.start_if_due(10.0)
    child.forward(signal.SIGHUP)
    child.forward(signal.SIGTERM)
    child.note_end(ended(number=signal.SIGKILL), 11.0)
    assert (child.over, child.exit_code) == (True, 128 + signal.SIGKILL)


def test_asked_while_there_is_none_there_will_be_none(child: AgentChild) -> None:
    child.forward(signal.SIGINT)
    child.start_if_due(1_000.0)
    assert (child.pid, child.exit_code) == (None, 0)
