"""The `daemon` of a schedule; fields have the same names as in the job file.

The job file readers validate raw documents and create specs.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

import msgspec

DEFAULT_PROBED_HOST: Final = "127.0.0.1"


class Restart(StrEnum):
    """After which outcomes an instance is restarted.

    A lost instance, or one ended by a user or an update, is always replaced.
    """

    ALWAYS = "always"
    ON_FAILURE = "on_failure"
    NEVER = "never"


class RestartBackoff(msgspec.Struct, frozen=True, kw_only=True):
    """The delay before a restart after early ends; doubles each time, up to a maximum."""

    delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(minutes=5)
    jitter: bool = True  # reduces the delay by up to half


class SlotShare(msgspec.Struct, frozen=True, kw_only=True):
    """A number or a percentage of the slots; at least one, so that updates can proceed."""

    number: int = 1
    percent: bool = False

    def of(self, total: int) -> int:
        return max(1, total * self.number // 100) if self.percent else self.number

    def __str__(self) -> str:
        return f"{self.number}%" if self.percent else str(self.number)


class HttpProbe(msgspec.Struct, frozen=True, kw_only=True):
    """A GET request that must return a status from 200 to 399; redirects are not followed."""

    url: str


class TcpProbe(msgspec.Struct, frozen=True, kw_only=True):
    """A connection that must be accepted."""

    port: int
    host: str = DEFAULT_PROBED_HOST


class ProbeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A periodic check by the agent; exactly one of the first three fields is set."""

    command: tuple[str, ...] | None = None  # exit code 0 is a success
    http: HttpProbe | None = None
    tcp: TcpProbe | None = None
    interval: timedelta = timedelta(seconds=10)
    timeout: timedelta = timedelta(seconds=1)
    failure_threshold: int = 3  # consecutive failures
    success_threshold: int = 1
    initial_delay: timedelta = timedelta(0)


class DaemonSpec(msgspec.Struct, frozen=True, kw_only=True):
    replicas: int = 1  # ignored with per_agent
    per_agent: bool = False  # one instance on every suitable agent
    restart: Restart = Restart.ALWAYS
    backoff: RestartBackoff = RestartBackoff()
    stable_after: timedelta = timedelta(minutes=1)  # resets the backoff of an instance that ran this long
    max_unavailable: SlotShare = SlotShare()  # during updates and drains
    liveness: ProbeSpec | None = None  # failure: the instance is restarted
    readiness: ProbeSpec | None = None  # failure: the instance runs but does not count as available
