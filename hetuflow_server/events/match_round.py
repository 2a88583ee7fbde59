"""One round of matching: what events and deadlines do to schedules, decided purely and written at once.

The caller has locked the schedules. Everything is written in its transaction, with the to-do's being ticked
off, so that a round that is cut off has not happened; and a task has an id derived of what starts it, so that
it exists once whatever happens.
"""

from __future__ import annotations

import secrets
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec
import structlog

from hetuflow_core import ids
from hetuflow_core.calendar import DaySet
from hetuflow_core.errors import Invalid
from hetuflow_core.events import Mode
from hetuflow_core.events.windows import (
    CHAIN_PERIOD,
    Arrival,
    EventOutcome,
    Window,
    at_deadline,
    decide,
    may_chain,
)
from hetuflow_core.schedule import jittered, skip_reason
from hetuflow_core.templates.rendering import render_value
from hetuflow_server.events import matching_store as store
from hetuflow_server.events.matching import EventSchedule, Match, Mismatch, described
from hetuflow_server.events.matching_store import NewEffect, TakenEvent
from hetuflow_server.jobs.versions import JobVersion, JobVersions
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.queue import create_transitions
from hetuflow_server.queue.rows import NewInstance, NewTask
from hetuflow_server.schedules.calendars.resolved import load_calendars
from hetuflow_server.schedules.task_template import mould_of

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.events")

# No JSON, so no value of a key: what chained events have started in the last minute.
_CHAIN_KEY = "chain"
_LONGEST_DETAIL = 1_000


@dataclass(frozen=True, slots=True)
class _Start:
    waiting: EventSchedule
    # What makes its task unique: an event, or a window that has ended.
    occurrence: UUID
    fire_at: datetime
    # Which event made it start; None when none has come at all.
    cause: UUID | None
    # Those of `all_of` in their order; else the one.
    events: tuple[UUID, ...]
    count: int
    window_id: UUID | None = None


@dataclass(frozen=True, slots=True)
class _NewWork:
    task: NewTask
    instance: NewInstance


class MatchRound:
    def __init__(self, connection: Connection, versions: JobVersions, now: datetime) -> None:
        self._connection = connection
        self._versions = versions
        self._now = now
        self._windows: dict[tuple[UUID, str], Window] = {}
        self._changed: set[tuple[UUID, str]] = set()
        self._namespaces: dict[UUID, int] = {}
        self._starts: list[_Start] = []
        self._effects: dict[tuple[UUID, UUID], NewEffect] = {}
        self._events: dict[UUID, TakenEvent] = {}
        # Where work has been made, and whether some of it waits for earlier fires.
        self.namespaces: set[int] = set()
        self.held = False

    async def arrive(self, matches: Sequence[Match], mismatches: Sequence[Mismatch]) -> None:
        """Decide about events that schedules want, in the order of the events."""
        for one in mismatches:
            self._note(one.event, one.waiting, EventOutcome.FAILED, detail=one.detail)
        keys = {(match.waiting.row.id, match.key) for match in matches if _remembers(match.waiting)}
        keys |= {(match.waiting.row.id, _CHAIN_KEY) for match in matches if match.event.depth}
        self._windows = await store.windows(self._connection, keys) if keys else {}
        for match in matches:
            self._events[match.event.id] = match.event
            self._arrive(match)

    async def expire(self, due: Sequence[tuple[UUID, str]], schedules: Mapping[UUID, EventSchedule]) -> None:
        """Decide about windows whose deadline has come; `schedules` are those that are enabled."""
        self._windows = await store.windows(self._connection, due)
        for (schedule_id, key), window in list(self._windows.items()):
            if window.deadline_at > self._now:
                continue
            waiting = schedules.get(schedule_id)
            if waiting is None or key == _CHAIN_KEY:
                self._keep(schedule_id, key, None)
                continue
            left, starts = at_deadline(waiting.event, window, self._now)
            self._namespaces[schedule_id] = waiting.row.namespace_id
            self._keep(schedule_id, key, left)
            if starts:
                self._starts.append(_of_window(waiting, window))

    async def write(self) -> int:
        """Write what has been decided; return how many tasks are new."""
        cast = await self._cast()
        kept = {key: self._windows[key] for key in self._changed if key in self._windows}
        await store.keep_windows(self._connection, kept, self._namespaces)
        await store.close_windows(self._connection, sorted(self._changed - kept.keys()))
        created: Collection[UUID] = ()
        if cast:
            created = await create_transitions.create(
                self._connection, [one.task for one in cast], [one.instance for one in cast]
            )
            fires = Counter(one.task.schedule_id for one in cast if one.task.id in created)
            await store.count_fires(self._connection, {id_: n for id_, n in fires.items() if id_})
        await store.write_effects(self._connection, list(self._effects.values()))
        self.namespaces = {one.task.namespace_id for one in cast}
        self.held = any(one.instance.held_reason is not None for one in cast)
        return len(created)

    def _arrive(self, match: Match) -> None:
        event, waiting = match.event, match.waiting
        schedule_id = waiting.row.id
        self._namespaces[schedule_id] = waiting.row.namespace_id
        if event.depth and (why := self._chained(schedule_id, event)) is not None:
            self._note(event, waiting, EventOutcome.LOOP, detail=why)
            return
        before = self._windows.get((schedule_id, match.key))
        arrival = Arrival(event.id, match.places, match.answers, self._now, self._new_id())
        decision = decide(waiting.event, before, arrival)
        if decision.overdue is not None:
            self._starts.append(_of_window(waiting, decision.overdue))
        if decision.window != before:
            self._keep(schedule_id, match.key, decision.window)
        window = decision.window or (before if decision.overdue is None else None)
        window_id = window.id if window is not None and waiting.event.mode is not Mode.THROTTLE else None
        if decision.starts:
            count = len(decision.starts)
            self._starts.append(
                _Start(waiting, event.id, event.created_at, event.id, decision.starts, count, window_id)
            )
            return
        self._note(event, waiting, decision.outcome, window_id=window_id)
        if decision.outcome is EventOutcome.ANSWERED and before is not None and before.last_event is not None:
            self._answered(before.last_event, waiting, before.id, event)

    def _answered(self, awaited: UUID, waiting: EventSchedule, window_id: UUID, answer: TakenEvent) -> None:
        """Tell of the event that something was waited for from that it has come."""
        self._effects[awaited, waiting.row.id] = NewEffect(
            event_id=awaited,
            schedule_id=waiting.row.id,
            outcome=EventOutcome.ANSWERED,
            depth=0,  # stays what it was
            window_id=window_id,
            detail=f"by {answer.id}",
        )

    def _chained(self, schedule_id: UUID, event: TakenEvent) -> str | None:
        window = self._windows.get((schedule_id, _CHAIN_KEY))
        if window is None or window.deadline_at <= self._now:
            window = Window(self._new_id(), self._now, self._now + CHAIN_PERIOD, count=0)
        why = may_chain(event.depth, window.count)
        self._keep(schedule_id, _CHAIN_KEY, replace(window, count=window.count + (why is None)))
        return why

    def _keep(self, schedule_id: UUID, key: str, window: Window | None) -> None:
        self._changed.add((schedule_id, key))
        if window is None:
            self._windows.pop((schedule_id, key), None)
        else:
            self._windows[schedule_id, key] = window

    def _note(
        self,
        event: TakenEvent,
        waiting: EventSchedule,
        outcome: EventOutcome,
        *,
        task_id: UUID | None = None,
        window_id: UUID | None = None,
        detail: str | None = None,
    ) -> None:
        self._effects[event.id, waiting.row.id] = NewEffect(
            event_id=event.id,
            schedule_id=waiting.row.id,
            outcome=outcome,
            depth=event.depth + 1,
            task_id=task_id,
            window_id=window_id,
            detail=detail[:_LONGEST_DETAIL] if detail is not None else None,
        )

    async def _cast(self) -> list[_NewWork]:
        """Make tasks of what starts, as far as calendars and templates let them."""
        if not self._starts:
            return []
        unknown = {id_ for start in self._starts for id_ in start.events} - self._events.keys()
        if unknown:
            self._events |= await store.events(self._connection, unknown)
        uses = [(start.waiting.row.namespace_id, start.waiting.spec) for start in self._starts]
        calendars = await load_calendars(self._connection, uses)
        cast = []
        for start in self._starts:
            row = start.waiting.row
            keyed = (
                await self._versions.get(self._connection, row.job_id, row.job_version) if row.keyed else None
            )
            made = self._cast_one(start, calendars.get(row.namespace_id, {}), keyed)
            if made is not None:
                cast.append(made)
        return cast

    def _cast_one(
        self, start: _Start, calendars: Mapping[str, DaySet], keyed: JobVersion | None
    ) -> _NewWork | None:
        waiting, now = start.waiting, self._now
        row, spec = waiting.row, waiting.spec
        events = [self._events[id_] for id_ in start.events if id_ in self._events]
        cause = None if start.cause is None else self._events.get(start.cause)
        if (why := _not_now(waiting, calendars, now)) is not None:
            self._refuse(start, cause, EventOutcome.SKIPPED, why)
            return None
        task_id = ids.task_of_event(row.id, start.occurrence)
        try:
            params = _params(waiting, events, cause, start.count)
            key = keyed.concurrency_key(params, task_id=task_id, fire_at=start.fire_at) if keyed else None
        except Invalid as error:
            self._refuse(start, cause, EventOutcome.FAILED, error.message)
            return None
        task_template = mould_of(row, spec, msgspec.json.encode(params).decode())
        task, instance = task_template.new_work(
            task_id, start.fire_at, jittered(row.id, now, spec.jitter), key
        )
        if cause is not None:
            self._note(cause, waiting, EventOutcome.STARTED, task_id=task_id, window_id=start.window_id)
        return _NewWork(task, instance)

    def _refuse(self, start: _Start, event: TakenEvent | None, outcome: EventOutcome, why: str) -> None:
        log.info(
            "A schedule with event starts nothing.",
            schedule=str(start.waiting.row.id),
            name=start.waiting.row.name,
            outcome=outcome.value,
            detail=why[:_LONGEST_DETAIL],
        )
        if event is not None:
            self._note(event, start.waiting, outcome, window_id=start.window_id, detail=why)

    def _new_id(self) -> UUID:
        return ids.new_id(self._now, secrets.token_bytes(10))


def _remembers(waiting: EventSchedule) -> bool:
    return waiting.event.mode is not Mode.EACH


def _of_window(waiting: EventSchedule, window: Window) -> _Start:
    cause = window.last_event
    events = () if cause is None else (cause,)
    occurrence = ids.closed_window(window.id, window.deadline_at)
    return _Start(waiting, occurrence, window.deadline_at, cause, events, window.count, window.id)


def _not_now(waiting: EventSchedule, calendars: Mapping[str, DaySet], now: datetime) -> str | None:
    """Why the schedule fires nothing at the moment."""
    spec = waiting.spec
    if spec.start_at is not None and now < spec.start_at:
        return f"the schedule begins at {spec.start_at.isoformat()}"
    if spec.end_at is not None and now > spec.end_at:
        return f"the schedule ends at {spec.end_at.isoformat()}"
    skip = skip_reason(spec, calendars, now)
    return skip.message if skip is not None else None


def _params(
    waiting: EventSchedule, events: Sequence[TakenEvent], cause: TakenEvent | None, count: int
) -> dict[str, Any]:
    """The job's, the schedule's on top of them, and on top of those what is taken from the events."""
    params: dict[str, Any] = {**msgspec.json.decode(waiting.row.params), **waiting.spec.params}
    if waiting.event.params:
        params |= render_value(
            waiting.event.params,
            {
                "payload": cause.payload if cause is not None else {},
                "event": {**(described(cause) if cause is not None else {}), "count": count},
                "events": [{**described(event), "payload": event.payload} for event in events],
            },
        )
    return params
