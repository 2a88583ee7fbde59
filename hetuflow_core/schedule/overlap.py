"""Decide about fires of a schedule that does not allow overlap, when they are due.

A fire of such a schedule is created as held. Shortly before it is due it is released if no other task of the
schedule is unfinished; from then on it counts as running. Otherwise the policy decides when it is due:

    skip            the fire is skipped
    queue_one       the fire waits; a fire that waited already is skipped
    queue_all       the fire waits behind the fires that wait already
    cancel_running  the running task is cancelled, and the fire starts when it has ended; a fire that
                    waited already is skipped

When the running task ends, a fire that waits or is nearly due is released. A fire that became due while
another task was running has overlapped it, even if no decision was made at that time: `ended_now`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from hetuflow_core.schedule.spec import Overlap

# A fire may be released this long before it is due, so that an agent can start it on time.
AHEAD: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class WaitingFire:
    """A held fire that is due or nearly due."""

    id: UUID
    due_at: datetime
    # A decision was made that the fire waits for the running task.
    queued: bool


@dataclass(frozen=True, slots=True)
class OverlapDecision:
    release: tuple[UUID, ...] = ()
    skip: tuple[UUID, ...] = ()
    # These fires wait until the running task ends.
    queue: tuple[UUID, ...] = ()
    cancel_running: bool = False
    # When to decide again, unless a task ends earlier.
    look_at: datetime | None = None


def decide(
    policy: Overlap,
    waiting: Sequence[WaitingFire],
    *,
    now: datetime,
    busy: bool,
    ended_now: bool = False,
) -> OverlapDecision:
    """Decide about waiting fires, given in the order (`due_at`, id).

    `ended_now`: a task of the schedule has just ended; fires that became due before overlapped it.
    """
    near = [fire for fire in waiting if fire.due_at <= now + AHEAD]
    if policy is Overlap.ALLOW:
        return OverlapDecision(release=tuple(fire.id for fire in near))
    due = [fire for fire in near if fire.due_at <= now]
    coming = [fire for fire in near if fire.due_at > now]
    if policy is Overlap.QUEUE_ALL:
        return _queue_all(due, coming, busy=busy)
    if policy is Overlap.SKIP:
        return _skip(due, coming, busy=busy, ended_now=ended_now)
    return _keep_newest(due, coming, busy=busy, ended_now=ended_now, cancels=policy is Overlap.CANCEL_RUNNING)


def _queue_all(due: list[WaitingFire], coming: list[WaitingFire], *, busy: bool) -> OverlapDecision:
    queue = [*due, *coming]
    released = [] if busy else queue[:1]
    return OverlapDecision(
        release=_ids(released),
        queue=_ids(fire for fire in due if fire not in released and not fire.queued),
        look_at=_next_decision(coming, released),
    )


def _skip(
    due: list[WaitingFire], coming: list[WaitingFire], *, busy: bool, ended_now: bool
) -> OverlapDecision:
    if busy or ended_now:
        released = [] if busy else coming[:1]
        return OverlapDecision(_ids(released), skip=_ids(due), look_at=_next_decision(coming, released))
    released = [*due, *coming][:1]
    overlapped = [fire for fire in due if fire not in released]
    return OverlapDecision(_ids(released), skip=_ids(overlapped), look_at=_next_decision(coming, released))


def _keep_newest(
    due: list[WaitingFire], coming: list[WaitingFire], *, busy: bool, ended_now: bool, cancels: bool
) -> OverlapDecision:
    if busy:
        return OverlapDecision(
            skip=_ids(due[:-1]),
            queue=_ids(fire for fire in due[-1:] if not fire.queued),
            cancel_running=cancels and bool(due),
            look_at=_next_decision(coming, []),
        )
    if cancels or ended_now or any(fire.queued for fire in due):
        released = due[-1:] or coming[:1]
        return OverlapDecision(_ids(released), skip=_ids(due[:-1]), look_at=_next_decision(coming, released))
    # The decision is late: on time, the first fire would have started and the newest would wait for it.
    released, overlapping = [*due, *coming][:1], due[1:]
    return OverlapDecision(
        _ids(released),
        skip=_ids(overlapping[:-1]),
        queue=_ids(overlapping[-1:]),
        look_at=_next_decision(coming, released),
    )


def _ids(fires: Iterable[WaitingFire]) -> tuple[UUID, ...]:
    return tuple(fire.id for fire in fires)


def _next_decision(coming: list[WaitingFire], released: list[WaitingFire]) -> datetime | None:
    return min((fire.due_at for fire in coming if fire not in released), default=None)
