"""What the `daemon` of a schedule says; every field has the name it has in the job file.

`hetuflow_core/jobfile/readers/daemons.py` makes it from raw documents and is where its rules are.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Final

import msgspec

DEFAULT_PROBED_HOST: Final = "127.0.0.1"


class Restart(StrEnum):
    """After which ends of its own an instance is followed by another.

    What was lost with its agent, or ended by a person or an update, is replaced whatever this says.
    """

    ALWAYS = "always"
    ON_FAILURE = "on_failure"
    NEVER = "never"


class RestartBackoff(msgspec.Struct, frozen=True, kw_only=True):
    """How long to wait before the next start while it keeps ending soon: doubled each time, up to a cap."""

    delay: timedelta = timedelta(seconds=1)
    max_delay: timedelta = timedelta(minutes=5)
    jitter: bool = True  # takes off up to half


class SlotShare(msgspec.Struct, frozen=True, kw_only=True):
    """So many of the slots, or so many of a hundred of them; one at least, or nothing would ever change."""

    number: int = 1
    percent: bool = False

    def of(self, total: int) -> int:
        return max(1, total * self.number // 100) if self.percent else self.number

    def __str__(self) -> str:
        return f"{self.number}%" if self.percent else str(self.number)


class HttpProbe(msgspec.Struct, frozen=True, kw_only=True):
    """A GET that must be answered with 200 to 399; redirects are not followed."""

    url: str


class TcpProbe(msgspec.Struct, frozen=True, kw_only=True):
    """A connection that must be accepted."""

    port: int
    host: str = DEFAULT_PROBED_HOST


class ProbeSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A question the agent asks again and again; exactly one of the first three is set."""

    command: tuple[str, ...] | None = None  # exit code 0 is a yes
    http: HttpProbe | None = None
    tcp: TcpProbe | None = None
    interval: timedelta = timedelta(seconds=10)
    timeout: timedelta = timedelta(seconds=1)
    failure_threshold: int = 3  # so many times in a row no means no
    success_threshold: int = 1
    initial_delay: timedelta = timedelta(0)


class DaemonSpec(msgspec.Struct, frozen=True, kw_only=True):
    replicas: int = 1  # of no meaning with per_agent
    per_agent: bool = False  # one on every agent that its job may run on
    restart: Restart = Restart.ALWAYS
    backoff: RestartBackoff = RestartBackoff()
    stable_after: timedelta = timedelta(minutes=1)  # whoever ran that long begins its backoff anew
    max_unavailable: SlotShare = SlotShare()  # while an update or a drained agent replaces instances
    liveness: ProbeSpec | None = None  # no: it is ended and started again
    readiness: ProbeSpec | None = None  # no: it runs, and does not count as available
