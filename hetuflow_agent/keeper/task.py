"""One task of the keeper: what it was told to run, how far that is, and how it is told to the agent."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from hetuflow_agent.keeper.proc import Identity, Stat
from hetuflow_agent.keeper.wire import Message, encode


class Phase(StrEnum):
    # Its instant has not come.
    WAITING = "waiting"
    RUNNING = "running"
    ENDED = "ended"
    # It could not be started; `exit` says why.
    FAILED = "failed"
    # It was started, and nobody knows how it ended.
    LOST = "lost"


OVER = frozenset({Phase.ENDED, Phase.FAILED, Phase.LOST})


class Why(StrEnum):
    """Why the keeper ended a task, beside what agents may tell it."""

    TIMED_OUT = "timed_out"
    LEASE_LOST = "lease_lost"
    OUTPUT_LIMIT = "output_limit"
    MEMORY_LIMIT = "memory_limit"
    UNWANTED = "unwanted"
    KEEPER_STOPPED = "agent_shutdown"
    RECALLED = "recalled"


@dataclass(slots=True)
class Spec:
    """A command as the agent describes it; times are seconds of boottime, durations seconds.

    Not frozen, which would make each of them at four times the cost.
    """

    key: str
    argv: list[str]
    cwd: str
    env: dict[str, str]
    stdout: str
    stderr: str
    # NAME=value out of `env` that no other task has.
    marker: str
    at: float = 0.0
    timeout: float | None = None
    kill_grace: float = 30.0
    # None: no lease binds it.
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
    # Whether it takes one of the agent's slots, and waits in line while there is none.
    counted: bool = False

    @staticmethod
    def read(message: Message) -> Spec:
        """Raises TypeError for a message that is none."""
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
    # On the wall clock, for those who read this after a reboot.
    started_wall: float | None = None
    renewed_at: float = 0.0
    # Why it is being ended, or was.
    why: str | None = None
    # When KILL follows TERM.
    kill_at: float | None = None
    # What its main process left, once it is gone; the task is over when its family is gone too.
    exit: dict[str, Any] = field(default_factory=dict)
    main_gone: bool = False
    killing: bool = False
    # Whether the kernel holds it to its memory as a whole; if not, it is looked at.
    memory_in_group: bool = False
    # The most bytes it was seen to have in memory with everything it started.
    memory_most: int = 0
    # When the table looks at it next.
    look_at: float | None = None
    seen: dict[int, Stat] = field(default_factory=dict)
    # Its last state, encoded, once it is written down.
    last_words: str | None = None
    # What every state of it begins with, encoded.
    head: str = ""

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
        """Everything the agent or the next keeper may want to know, in one message."""
        return {**self._name(), **self.facts()}

    def encoded(self) -> str:
        """The same, without encoding twice what is true of all its states: most tasks have but two."""
        if not self.head:
            self.head = encode(self._name())[:-1]
        facts = _NOTHING_YET if self.phase is Phase.WAITING else encode(self.facts())
        return f"{self.head},{facts[1:]}"

    def _name(self) -> Message:
        return {"op": "state", "key": self.key, "marker": self.marker, "boot_id": self.boot_id}

    def facts(self) -> Message:
        """How far it is, without saying which one."""
        return {
            "phase": self.phase,
            "pid": self.pid,
            "start_ticks": self.start_ticks,
            "started_at": self.started_at,
            "started_wall": self.started_wall,
            "why": self.why,
            **self.exit,
        }


_NOTHING_YET: Final = encode(Task("", Phase.WAITING, "", "").facts())
