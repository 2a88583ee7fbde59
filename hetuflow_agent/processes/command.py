"""What is handed to the keeper, and what comes back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec
from msgspec import structs

from hetuflow_agent.keeper.task import Phase, Why
from hetuflow_agent.keeper.wire import Message

TOO_MUCH_OUTPUT: Final = "It wrote more than the agent allows: write less, or raise agent.output_limit."


class Command(msgspec.Struct, tag_field="op", tag="spawn", omit_defaults=True):
    """`key` names it for good: the same one twice is one process.

    It is sent as it is, without what the keeper takes for granted too. Durations are seconds, `at` and
    `renewed_at` seconds of boottime.
    """

    key: UUID
    argv: Sequence[str]
    cwd: Path | str
    env: Mapping[str, str]
    stdout: str
    stderr: str
    # NAME=value out of `env` that no other command has.
    marker: str
    at: float = 0.0
    timeout: float | None = None
    kill_grace: float = 30.0
    # None: it may go on without word from the server.
    lease: float | None = None
    renewed_at: float = 0.0
    # Most bytes that stdout and stderr may have together; of a rolling log, what is still on the disk.
    output_limit: int | None = None
    rolling: bool = False
    # Bytes it may have in memory with everything it started, and how much of the CPUs it may use.
    memory: int | None = None
    cpu: float | None = None
    nice: int = 0
    # Of the host; None: our own.
    user: str | None = None
    # Whether it takes one of our slots, and waits at the keeper while there is none.
    counted: bool = False

    def for_a_keeper_without_rolling_logs(self) -> Command:
        """To one of an earlier version, that still runs something, such a log has no limit."""
        return structs.replace(self, rolling=False, output_limit=None) if self.rolling else self


@dataclass(frozen=True, slots=True)
class Failure:
    """Why something could not be started: what was at fault, and how the system puts it."""

    what: str
    error: str


@dataclass(slots=True)
class Exit:
    """How work ended: a process by an exit code or a signal, other work with a reason if it failed.

    Not frozen, which would make each of them at four times the cost.
    """

    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    # Why the keeper ended it; None when it ended by itself.
    why: str | None = None
    # It could not be started.
    failure: Failure | None = None
    # Nobody knows how it ended; this is why.
    lost: str | None = None
    started: bool = True
    # Seconds of processor time and the most memory in bytes, where they are known.
    cpu_seconds: float | None = field(default=None, compare=False)
    memory_peak: int | None = field(default=None, compare=False)
    # Bytes that came from and went to disks, not to caches.
    read_bytes: int | None = field(default=None, compare=False)
    written_bytes: int | None = field(default=None, compare=False)
    # The kernel, or the keeper in its place, ended something of it for want of memory.
    oom: bool = False
    # Nothing that it has started lives on; False where nobody knows.
    deserted: bool = field(default=False, compare=False)

    @property
    def given_back(self) -> bool:
        """It waited for a slot, or for its instant, and nothing has begun: somebody else may have it."""
        return not self.started and self.why in (Why.RECALLED, Why.KEEPER_STOPPED)


class Instant(msgspec.Struct, frozen=True):
    """A moment in the life of a process: on boottime while that boot lasts, else on the wall clock."""

    boottime: float | None
    wall: float


def instant_of(state: Message, name: str, boot_id: str) -> Instant | None:
    wall = state.get(f"{name}_wall")
    if wall is None:
        return None
    return Instant(state[f"{name}_at"] if state["boot_id"] == boot_id else None, wall)


def exit_of(state: Message) -> Exit:
    """The exit that a state which is over tells."""
    match state["phase"]:
        case Phase.FAILED:
            return Exit(failure=Failure(state["what"], state["error"]), started=False)
        case Phase.LOST:
            return Exit(lost=state["reason"])
    return Exit(
        exit_code=state.get("exit_code"),
        signal=state.get("signal"),
        why=state["why"],
        started=state.get("started", True),
        cpu_seconds=state.get("cpu_seconds"),
        memory_peak=state.get("memory_peak"),
        read_bytes=state.get("read_bytes"),
        written_bytes=state.get("written_bytes"),
        oom=state.get("oom", False),
        deserted=state.get("deserted", False),
    )
