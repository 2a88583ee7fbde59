"""What follows when an instance of a daemon has ended: another one, when, or none."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final

from hetuflow_core.daemon.spec import DaemonSpec, Restart, RestartBackoff
from hetuflow_core.states import INSTANCE_TERMINAL, InstanceStatus

_NONE: Final = timedelta(0)
_MICROSECOND: Final = timedelta(microseconds=1)
_GOOD: Final = frozenset({InstanceStatus.SUCCEEDED, InstanceStatus.SKIPPED})
# Doubling more often than this changes nothing: every cap is reached.
_MOST_DOUBLINGS: Final = 62


@dataclass(frozen=True, slots=True)
class RestartDecision:
    # The policy says that nothing follows.
    rests: bool
    # How often in a row it has ended before it was stable.
    crashes: int
    delay: timedelta = _NONE


def after_end(
    spec: DaemonSpec, status: InstanceStatus, *, ran_for: timedelta, crashes: int, random: float
) -> RestartDecision:
    """Decide what follows an instance that ended as `status` after `crashes` that ended too soon before it.

    `random` lies between 0 and 1. What somebody ended on purpose is replaced at once: that says nothing about
    how well it runs. What was lost is replaced too, and counts as a crash unless it had run long enough; so a
    host on which nothing can be started is not asked again and again.
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
    """The delay after so many crashes in a row, before jitter."""
    if crashes < 1:
        raise ValueError("a delay follows at least one crash")
    # In whole numbers: a duration doubled a hundred times is beyond what a timedelta holds.
    delay = (backoff.delay // _MICROSECOND) << min(crashes - 1, _MOST_DOUBLINGS)
    return min(backoff.max_delay, timedelta(microseconds=min(delay, backoff.max_delay // _MICROSECOND)))


def _is_final(restart: Restart, status: InstanceStatus) -> bool:
    return restart is Restart.NEVER or (restart is Restart.ON_FAILURE and status in _GOOD)
