"""The documents of a job file as both sides hold them; every field has the name it has in the file.

`hetuflow_core/jobfile/job_reader.py` makes them from raw documents and is where their rules are; a spec that
exists has been checked.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from hetuflow_core.placement import Requirements
from hetuflow_core.retry import RetryPolicy

DEFAULT_NAMESPACE: Final = "default"
DEFAULT_SHELL: Final = "bash"
DEFAULT_PRIORITY: Final = 500
DEFAULT_KILL_GRACE: Final = timedelta(seconds=30)
DEFAULT_LEASE: Final = timedelta(minutes=5)
DEFAULT_WEIGHT: Final = 100


class Kind(StrEnum):
    JOB = "job"
    NAMESPACE = "namespace"
    CALENDAR = "calendar"
    LIMIT = "limit"
    SECRET = "secret"  # noqa: S105 (the name of a kind)
    ALERT = "alert"


class Executor(StrEnum):
    """The keys of `run`, one of which says what is run."""

    COMMAND = "command"
    SCRIPT = "script"


class OnLost(StrEnum):
    """What the agent does with work it can no longer report about."""

    KILL = "kill"
    CONTINUE = "continue"


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly one of `command` and `script` is set; items of `command` and values of `env` are templates."""

    command: tuple[str, ...] | None = None
    script: str | None = None
    shell: str | None = None  # set with `script` only
    env: dict[str, str] = {}
    workdir: str | None = None  # None: a fresh directory per instance

    @property
    def executor(self) -> Executor:
        return Executor.SCRIPT if self.command is None else Executor.COMMAND


class Concurrency(msgspec.Struct, frozen=True, kw_only=True):
    max: int | None = None
    key: str | None = None  # a template, rendered when the task is created


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    kind: ClassVar[Kind] = Kind.JOB

    namespace: str = DEFAULT_NAMESPACE
    name: str
    labels: dict[str, str] = {}
    run: Run
    params: dict[str, Any] = {}
    priority: int = DEFAULT_PRIORITY
    timeout: timedelta | None = None  # per attempt
    deadline: timedelta | None = None  # for the whole task
    retry: RetryPolicy = RetryPolicy()
    concurrency: Concurrency = Concurrency()
    limits: tuple[str, ...] = ()
    placement: Requirements = Requirements()
    kill_grace: timedelta = DEFAULT_KILL_GRACE
    on_lost: OnLost = OnLost.KILL
    lease: timedelta = DEFAULT_LEASE
    skip_exit_codes: tuple[int, ...] = ()


class NamespaceSpec(msgspec.Struct, frozen=True, kw_only=True):
    kind: ClassVar[Kind] = Kind.NAMESPACE

    name: str
    weight: int = DEFAULT_WEIGHT
    labels: dict[str, str] = {}


Document: TypeAlias = "JobSpec | NamespaceSpec"
