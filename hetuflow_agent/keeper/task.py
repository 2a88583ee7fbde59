"""One task of the keeper: its command, its state, and the message that reports the state to the agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from hetuflow_agent.keeper.proc import Identity, Stat, stat_of
from hetuflow_agent.keeper.wire import Message, encode


class Phase(StrEnum):
    # It is not due, or has no slot.
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    # It could not be started; `exit` says why.
    FAILED = "failed"
    # It was started, and its end is unknown.
    LOST = "lost"


OVER = frozenset({Phase.ENDED, Phase.FAILED, Phase.LOST})


class Why(StrEnum):
    """Why the keeper ended a task; agents may name other reasons."""

    TIMED_OUT = "timed_out"
    LEASE_LOST = "lease_lost"
    OUTPUT_LIMIT = "output_limit"
    MEMORY_LIMIT = "memory_limit"
    UNWANTED = "unwanted"
    KEEPER_STOPPED = "agent_shutdown"
    RECALLED = "recalled"


@dataclass(slots=True)
class Spec:
    """A command of the agent. Times are seconds of boottime, durations seconds.

    Not frozen: making a frozen instance takes four times as long.
    """

    key: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    stdout: str
    stderr: str
    # A variable NAME=value of `env` that no other task has.
    marker: str
    at: float = 0.0
    timeout: float | None = None
    kill_grace: float = 30.0
    # None: the task does not depend on a lease.
    lease: float | None = None
    renewed_at: float = 0.0
    # The most bytes of stdout and stderr together; for a rolling log, only bytes on the disk.
    output_limit: int | None = None
    rolling: bool = False
    # The most bytes of memory and the number of CPUs, for all processes of the task.
    memory: int | None = None
    cpu: float | None = None
    nice: int = 0
    # A user of the host; None: the keeper's own.
    user: str | None = None
    # Whether the task needs a slot of the agent, and waits until one is free.
    counted: bool = False

    @staticmethod
    def read(message: Message) -> Spec:
        """Raises TypeError if the message is not a command."""
        message.pop("op", None)
        return Spec(**message)


@dataclass(slots=True)
class Task:
    key: str
    phase: Phase
    marker: str
    boot_id: str
    spec: Spec | None = None
    pid: int | None = None
    start_ticks: int | None = None
    started_at: float | None = None
    # In wall time, which is still meaningful after a reboot.
    started_wall: float | None = None
    renewed_at: float = 0.0
    # Why the task is being ended, or was ended.
    why: str | None = None
    # When KILL follows TERM.
    kill_at: float | None = None
    # The end of the main process. The task has ended when all of its processes have exited.
    exit: dict[str, Any] = field(default_factory=dict)
    main_gone: bool = False
    killing: bool = False
    # Whether a control group limits the memory; otherwise the keeper checks it.
    memory_in_group: bool = False
    # The largest memory of all its processes together that the keeper has seen, in bytes.
    memory_most: int = 0
    # When the keeper checks the task next.
    check_at: float | None = None
    seen: dict[int, Stat] = field(default_factory=dict)
    # The encoded final state, once it is in the journal.
    final_state: str | None = None
    # The encoded beginning that all states of the task share.
    prefix: str = ""

    @property
    def over(self) -> bool:
        return self.phase in OVER

    @property
    def ending(self) -> bool:
        return self.why is not None

    @property
    def identity(self) -> Identity | None:
        if self.pid is None or self.start_ticks is None:
            return None
        return Identity(self.pid, self.start_ticks, self.boot_id)

    def state(self) -> Message:
        """All that the agent or the next keeper may need, in one message."""
        return {**self._identification(), **self.progress()}

    def encoded(self) -> str:
        """The encoded state; the part that all states share is encoded once."""
        if not self.prefix:
            self.prefix = encode(self._identification())[:-1]
        progress = _WAITING if self.phase is Phase.WAITING else encode(self.progress())
        return f"{self.prefix},{progress[1:]}"

    def identify(self) -> None:
        """Note the start time of a running process, which identifies it together with its pid.

        It is read only for tasks that run when their state is sent: a short task has ended by then.
        """
        if self.phase is Phase.RUNNING and self.start_ticks is None and self.pid is not None:
            stat = stat_of(self.pid)
            self.start_ticks = stat.start_ticks if stat else 0

    def _identification(self) -> Message:
        return {"op": "state", "key": self.key, "marker": self.marker, "boot_id": self.boot_id}

    def progress(self) -> Message:
        return {
            "phase": self.phase,
            "pid": self.pid,
            "start_ticks": self.start_ticks,
            "started_at": self.started_at,
            "started_wall": self.started_wall,
            "why": self.why,
            **self.exit,
        }


_WAITING: Final = encode(Task("", Phase.WAITING, "", "").progress())
