"""What an end means, and what silence of the server means."""

from __future__ import annotations

import pytest

from hetuflow_agent.attempt.classify import Ending, Verdict, classify
from hetuflow_agent.keeper.fencing import Fence, fence
from hetuflow_agent.processes.command import Exit
from hetuflow_core.states import InstanceStatus as Status


@pytest.mark.parametrize(
    ("end", "ending", "verdict"),
    [
        (Exit(exit_code=0), None, Verdict(Status.SUCCEEDED, exit_code=0)),
        (Exit(exit_code=3), None, Verdict(Status.FAILED, exit_code=3)),
        (Exit(signal=11), None, Verdict(Status.FAILED, signal=11)),
        (Exit(signal=15), Ending.CANCELLED, Verdict(Status.CANCELLED, signal=15)),
        (Exit(exit_code=0), Ending.TIMED_OUT, Verdict(Status.TIMED_OUT, exit_code=0)),
        (Exit(signal=9), Ending.LEASE_LOST, Verdict(Status.LOST, "lease_lost", signal=9)),
        (Exit(exit_code=0), Ending.AGENT_SHUTDOWN, Verdict(Status.LOST, "agent_shutdown", exit_code=0)),
        (Exit(exit_code=0), Ending.UNWANTED, None),
    ],
)
def test_classify(end: Exit, ending: Ending | None, verdict: Verdict | None) -> None:
    assert classify(end, ending) == verdict


@pytest.mark.parametrize(
    ("silent", "action"),
    [
        (0, Fence.LEAVE),
        (179.9, Fence.LEAVE),
        (180, Fence.TERM),
        (254.9, Fence.TERM),
        (255, Fence.KILL),
        (900, Fence.KILL),
    ],
)
def test_silence_is_measured_against_the_lease(silent: float, action: Fence) -> None:
    assert fence(1_000.0 + silent, 1_000.0, 300.0) is action
