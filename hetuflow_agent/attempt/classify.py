"""What the end of the work means for the instance: pure decisions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from enum import StrEnum
from typing import Final

import msgspec

from hetuflow_agent.executors.interface import Plan
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.keeper.task import Why
from hetuflow_agent.processes.command import TOO_MUCH_OUTPUT, Exit, Failure
from hetuflow_core.messages import Usage
from hetuflow_core.states import InstanceStatus

# Results whose work folder is kept for inspection.
FAILURES: Final = frozenset({InstanceStatus.FAILED, InstanceStatus.TIMED_OUT, InstanceStatus.LOST})


class Ending(StrEnum):
    """Why the agent or the keeper ended an attempt."""

    CANCELLED = "cancelled"
    TIMED_OUT = "timed_out"
    # This agent lost the claim: the server expects no result.
    UNWANTED = "unwanted"
    LEASE_LOST = "lease_lost"
    AGENT_SHUTDOWN = "agent_shutdown"
    OUTPUT_LIMIT = "output_limit"
    MEMORY_LIMIT = "memory_limit"
    LIVENESS_FAILED = "liveness_failed"


class Verdict(msgspec.Struct, frozen=True):
    status: InstanceStatus
    reason: str | None = None
    message: str | None = None
    exit_code: int | None = None
    signal: int | None = None
    usage: Usage | None = None
    oom: bool = False


def usage_of(end: Exit) -> Usage | None:
    if end.cpu_seconds is None and end.memory_peak is None:
        return None
    return Usage(end.cpu_seconds, end.memory_peak, end.read_bytes, end.written_bytes)


def is_returned(end: Exit) -> bool:
    """Whether the command left the keeper before it began: another agent may run it."""
    return not end.started and end.why in (Why.RECALLED, Why.KEEPER_STOPPED)


def verdict_on(end: Exit, program: Plan | None, directory: ClaimDirectory) -> Verdict | None:
    """The verdict on work that has ended.

    The reason is the one that the work was ended for: a request that came after the end does not count.
    """
    if end.failure is not None:
        name, cwd = ("The command", directory.work) if program is None else (program.argv[0], program.cwd)
        end = replace(end, failure=describe(end.failure, name, str(cwd)))
    return classify(end, Ending(end.why) if end.why is not None else None)


def classify(end: Exit, ending: Ending | None) -> Verdict | None:
    """The verdict on work that ended, or was ended for this reason; None if the server expects no result."""
    if end.lost is not None:
        return Verdict(InstanceStatus.LOST, end.lost)
    if end.failure is not None:
        return _not_started(end.failure)
    judged = _judge(end, ending)
    if judged is None:
        return None
    return Verdict(
        judged.status, judged.reason, judged.message, end.exit_code, end.signal, usage_of(end), end.oom
    )


_MEMORY_LIMIT: Final = (
    "It used more memory than the job asks for: use less, or raise placement.resources.memory."
)
_LIVENESS: Final = "Its liveness probe has failed too often; see the agent's log for the answers."

_ENDED_BY_US: Final[Mapping[Ending, Verdict | None]] = {
    Ending.UNWANTED: None,
    Ending.CANCELLED: Verdict(InstanceStatus.CANCELLED),
    Ending.TIMED_OUT: Verdict(InstanceStatus.TIMED_OUT),
    Ending.LEASE_LOST: Verdict(InstanceStatus.LOST, Ending.LEASE_LOST.value),
    Ending.AGENT_SHUTDOWN: Verdict(InstanceStatus.LOST, Ending.AGENT_SHUTDOWN.value),
    Ending.MEMORY_LIMIT: Verdict(InstanceStatus.FAILED, Ending.MEMORY_LIMIT.value, _MEMORY_LIMIT),
    Ending.LIVENESS_FAILED: Verdict(InstanceStatus.FAILED, Ending.LIVENESS_FAILED.value, _LIVENESS),
    Ending.OUTPUT_LIMIT: Verdict(InstanceStatus.FAILED, Ending.OUTPUT_LIMIT.value, TOO_MUCH_OUTPUT),
}


def _judge(end: Exit, ending: Ending | None) -> Verdict | None:
    if ending is not None:
        return _ENDED_BY_US[ending]
    if end.exit_code == 0:
        return Verdict(InstanceStatus.SUCCEEDED)
    return Verdict(InstanceStatus.FAILED, end.reason, end.message)


def _not_started(failure: Failure) -> Verdict:
    if failure.what == "journal":
        # The job is not at fault, and another host may have disk space.
        return Verdict(
            InstanceStatus.LOST,
            "agent_blocked",
            f"The keeper cannot record the start of the command ({failure.error}): check the agent's disk.",
        )
    return Verdict(InstanceStatus.FAILED, "spawn_failed", failure.error)


_SENTENCES: Final[Mapping[str, str]] = {
    "cwd": "The working directory {cwd} cannot be entered ({error}): make it or correct the job.",
    "command": "The command cannot be started ({error}): correct the job.",
    "output": "The files for its output cannot be opened ({error}): check the agent's data folder.",
    "user": "It cannot be run as the user the job names ({error}): correct run.user or agent.run_as.",
    "program": "{program} cannot be started ({error}): install it on this host or correct the job.",
}


def describe(failure: Failure, program: str, cwd: str) -> Failure:
    """The failure as a sentence for the owner of the job."""
    sentence = _SENTENCES.get(failure.what, "{error}")
    return Failure(failure.what, sentence.format(cwd=cwd, program=program, error=failure.error))
