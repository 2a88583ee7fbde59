"""What becomes of the fires of one schedule that wait for each other, decided when they are due.

A fire of a schedule that does not allow overlap is held from the start. Shortly before it is due it is
released if nothing of the schedule is under way, and counts as running from then on. Otherwise it is decided
about at the moment it is due, by the policy:

    skip            it is skipped
    queue_one       it waits; one that waited already is skipped, so the newest waits
    queue_all       it waits behind those that wait already
    cancel_running  what is under way is cancelled, and it starts when that has ended; the newest takes the
                    place of one that waited already

What waits, or is about to become due, is released when what was under way has ended. A fire whose time came
while another was under way has overlapped it, also when nobody looked at that very moment: hence
`ended_now`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

from hetuflow_core.schedule.spec import Overlap

# So long before it is due a fire may be released, for agents to take it and start it on the dot.
AHEAD: Final = timedelta(seconds=2)


@dataclass(frozen=True, slots=True)
class WaitingFire:
    """A held fire that is due, or soon will be."""

    id: UUID
    due_at: datetime
    # It has been decided that it waits for what is under way.
    queued: bool


@dataclass(frozen=True, slots=True)
class OverlapDecision:
    release: tuple[UUID, ...] = ()
    skip: tuple[UUID, ...] = ()
    # They wait for what is under way to end.
    queue: tuple[UUID, ...] = ()
    cancel_running: bool = False
    # When to look again, unless something ends before.
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

    `ended_now` says that something of the schedule has just ended: what became due before that overlapped it.
    """
    near = [fire for fire in waiting if fire.due_at <= now + AHEAD]
    if policy is Overlap.ALLOW:
        return OverlapDecision(release=tuple(fire.id for fire in near))
    due = [fire for fire in near if fire.due_at <= now]
    coming = [fire for fire in near if fire.due_at > now]
    if policy is Overlap.QUEUE_ALL:
        return _in_turn(due, coming, busy=busy)
    if policy is Overlap.SKIP:
        return _or_never(due, coming, busy=busy, ended_now=ended_now)
    return _newest(due, coming, busy=busy, ended_now=ended_now, cancels=policy is Overlap.CANCEL_RUNNING)


def _in_turn(due: list[WaitingFire], coming: list[WaitingFire], *, busy: bool) -> OverlapDecision:
    line = [*due, *coming]
    released = [] if busy else line[:1]
    return OverlapDecision(
        release=_ids(released),
        queue=_ids(fire for fire in due if fire not in released and not fire.queued),
        look_at=_next_look(coming, released),
    )


def _or_never(
    due: list[WaitingFire], coming: list[WaitingFire], *, busy: bool, ended_now: bool
) -> OverlapDecision:
    if busy or ended_now:
        released = [] if busy else coming[:1]
        return OverlapDecision(_ids(released), skip=_ids(due), look_at=_next_look(coming, released))
    released = [*due, *coming][:1]
    overlapped = [fire for fire in due if fire not in released]
    return OverlapDecision(_ids(released), skip=_ids(overlapped), look_at=_next_look(coming, released))


def _newest(
    due: list[WaitingFire], coming: list[WaitingFire], *, busy: bool, ended_now: bool, cancels: bool
) -> OverlapDecision:
    if busy:
        return OverlapDecision(
            skip=_ids(due[:-1]),
            queue=_ids(fire for fire in due[-1:] if not fire.queued),
            cancel_running=cancels and bool(due),
            look_at=_next_look(coming, []),
        )
    if cancels or ended_now or any(fire.queued for fire in due):
        released = due[-1:] or coming[:1]
        return OverlapDecision(_ids(released), skip=_ids(due[:-1]), look_at=_next_look(coming, released))
    # Nobody looked for a while: the first would have started, and the newest be waiting for it.
    released, overlapping = [*due, *coming][:1], due[1:]
    return OverlapDecision(
        _ids(released),
        skip=_ids(overlapping[:-1]),
        queue=_ids(overlapping[-1:]),
        look_at=_next_look(coming, released),
    )


def _ids(fires: Iterable[WaitingFire]) -> tuple[UUID, ...]:
    return tuple(fire.id for fire in fires)


def _next_look(coming: list[WaitingFire], released: list[WaitingFire]) -> datetime | None:
    return min((fire.due_at for fire in coming if fire not in released), default=None)
