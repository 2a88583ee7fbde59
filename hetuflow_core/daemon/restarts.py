"""Decide whether and when an ended instance of a daemon is restarted."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from hetuflow_core.daemon.spec import DaemonSpec, Restart, RestartBackoff
from hetuflow_core.states import INSTANCE_TERMINAL, InstanceStatus

_NONE: Final = timedelta(0)
_MICROSECOND: Final = timedelta(microseconds=1)
_GOOD: Final = frozenset({InstanceStatus.SUCCEEDED, InstanceStatus.SKIPPED})
# More doublings have no effect, because every maximum is reached.
_MOST_DOUBLINGS: Final = 62


@dataclass(frozen=True, slots=True)
class RestartDecision:
    # The restart policy ends the slot.
    rests: bool
    # Consecutive ends before the instance was stable.
    crashes: int
    delay: timedelta = _NONE


def after_end(
    spec: DaemonSpec, status: InstanceStatus, *, ran_for: timedelta, crashes: int, random: float
) -> RestartDecision:
    """Decide about an instance that ended as `status`, after `crashes` consecutive early ends.

    `random` is between 0 and 1. A cancelled instance is replaced immediately, because a cancel is not a
    failure. A lost instance is replaced too, and counts as a crash unless it was stable, so that a host that
    cannot start processes is not tried without a delay.
    """
    if status not in INSTANCE_TERMINAL:
        raise ValueError(f"an instance that is {status} has not ended")
    if status is InstanceStatus.CANCELLED:
        return RestartDecision(rests=False, crashes=0)
    if status is not InstanceStatus.LOST and _is_final(spec.restart, status):
        return RestartDecision(rests=True, crashes=0)
    if ran_for >= spec.stable_after:
        return RestartDecision(rests=False, crashes=0)
    ceiling = longest_delay(spec.backoff, crashes + 1)
    share = 1.0 - random / 2 if spec.backoff.jitter else 1.0
    return RestartDecision(rests=False, crashes=crashes + 1, delay=ceiling * share)


def longest_delay(backoff: RestartBackoff, crashes: int) -> timedelta:
    """Return the delay after consecutive crashes, before jitter."""
    if crashes < 1:
        raise ValueError("a delay follows at least one crash")
    # Integers, because a timedelta would overflow after many doublings.
    delay = (backoff.delay // _MICROSECOND) << min(crashes - 1, _MOST_DOUBLINGS)
    return min(backoff.max_delay, timedelta(microseconds=min(delay, backoff.max_delay // _MICROSECOND)))


def _is_final(restart: Restart, status: InstanceStatus) -> bool:
    return restart is Restart.NEVER or (restart is Restart.ON_FAILURE and status in _GOOD)
