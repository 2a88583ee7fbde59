"""The data that agent and keeper exchange about work: commands, and how they ended."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final
from uuid import UUID

import msgspec
from msgspec import structs

TOO_MUCH_OUTPUT: Final = "It wrote more than the agent allows: write less, or raise agent.output_limit."


class Command(msgspec.Struct, tag_field="op", tag="spawn", omit_defaults=True):
    """A command for the keeper. The keeper runs a command once, also if it is sent twice with the same `key`.

    It is sent without the fields that have their default, which the keeper knows too. Durations are seconds,
    `at` and `renewed_at` seconds of boottime.
    """

    key: UUID
    argv: Sequence[str]
    cwd: Path | str
    env: Mapping[str, str]
    stdout: str
    stderr: str
    # A variable NAME=value of `env` that no other command has.
    marker: str
    at: float = 0.0
    timeout: float | None = None
    kill_grace: float = 30.0
    # None: the command may continue when the lease expires.
    lease: float | None = None
    renewed_at: float = 0.0
    # The most bytes of stdout and stderr together; for a rolling log, only bytes on the disk.
    output_limit: int | None = None
    rolling: bool = False
    # The most bytes of memory and the number of CPUs, for all processes of the command.
    memory: int | None = None
    cpu: float | None = None
    nice: int = 0
    # A user of the host; None: the agent's own.
    user: str | None = None
    # Whether the command needs a slot of the agent, and waits at the keeper until one is free.
    counted: bool = False

    def for_a_keeper_without_rolling_logs(self) -> Command:
        """For a keeper of an earlier version that still runs tasks: without a limit of the rolling log."""
        return structs.replace(self, rolling=False, output_limit=None) if self.rolling else self


@dataclass(frozen=True, slots=True)
class Failure:
    """Why a command could not be started: the part at fault, and the error of the system."""

    what: str
    error: str


@dataclass(slots=True)
class Exit:
    """How work ended: a process with an exit code or a signal, other work with a reason if it failed.

    Not frozen: making a frozen instance takes four times as long.
    """

    exit_code: int | None = None
    signal: int | None = None
    reason: str | None = None
    message: str | None = None
    # Why the keeper or the agent ended the work; None if it ended by itself.
    why: str | None = None
    # Set if the work could not be started.
    failure: Failure | None = None
    # Set if the end is unknown: the reason.
    lost: str | None = None
    started: bool = True
    # Seconds of CPU time and the peak of memory in bytes, if known.
    cpu_seconds: float | None = field(default=None, compare=False)
    memory_peak: int | None = field(default=None, compare=False)
    # Bytes read from and written to disks, without caches.
    read_bytes: int | None = field(default=None, compare=False)
    written_bytes: int | None = field(default=None, compare=False)
    # Whether the kernel or the keeper killed a process of the work because of its memory.
    oom: bool = False
    # Whether no process of the work is left; False if unknown.
    no_process_left: bool = field(default=False, compare=False)


class Instant(msgspec.Struct, frozen=True):
    """When a process started or ended: in boottime if the host was not rebooted since, else in wall time."""

    boottime: float | None
    wall: float
