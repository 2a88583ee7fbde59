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
def companion(monkeypatch: pytest.MonkeyPatch) -> AgentChild:
    monkeypatch.setattr("os.posix_spawn", lambda *_, **__: 4711)
    monkeypatch.setattr("os.kill", lambda *_: None)
    return AgentChild([sys.executable])


@pytest.mark.parametrize("code", [0, 9])
def test_one_that_ends_by_itself_is_over(companion: AgentChild, code: int) -> None:
    assert companion.tend(10.0) == companion.pid == 4711
    assert companion.tend(10.0) is None, "it is there"
    companion.note_end(ended(code), 11.0)
    assert (companion.over, companion.exit_code, companion.start_at) == (True, code, None)


def test_one_that_was_killed_comes_back_later_and_later_unless_it_was_well(companion: AgentChild) -> None:
    companion.tend(10.0)
    pauses = []
    for _ in range(6):
        companion.note_end(ended(number=signal.SIGKILL), 10.0)
        assert companion.start_at is not None
        pauses.append(companion.start_at - 10.0)
        companion.tend(10.0)
        assert companion.pid is None, "not yet"
    assert pauses == [1, 2, 4, 8, 16, 30]
    companion.tend(100.0)
    companion.note_end(ended(number=signal.SIGKILL), 200.0)
    assert companion.start_at == 201.0


def test_one_that_was_asked_to_end_does_not_come_back(companion: AgentChild) -> None:
    companion.tend(10.0)
    companion.forward(signal.SIGHUP)
    companion.forward(signal.SIGTERM)
    companion.note_end(ended(number=signal.SIGKILL), 11.0)
    assert (companion.over, companion.exit_code) == (True, 128 + signal.SIGKILL)


def test_asked_while_there_is_none_there_will_be_none(companion: AgentChild) -> None:
    companion.forward(signal.SIGINT)
    companion.tend(1_000.0)
    assert (companion.pid, companion.exit_code) == (None, 0)
