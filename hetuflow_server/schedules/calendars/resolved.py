"""The calendars that schedules go by, put together from what is stored."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from functools import lru_cache
from itertools import groupby
from typing import Any

import msgspec
import structlog

from hetuflow_core.calendar import DaySet, PublicHolidays
from hetuflow_core.errors import Invalid
from hetuflow_core.jobfile import CalendarSpec, Kind, load_documents, raw_document
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_server.postgres.database import Connection
from hetuflow_server.schedules.calendars import store
from hetuflow_server.schedules.calendars.store import CalendarRow

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.calendars")

_HOLIDAYS = PublicHolidays()
_ANY_YEAR = 2000
_MOST_PARSED = 1024


async def load_calendars(
    connection: Connection, uses: Iterable[tuple[int, ScheduleSpec]]
) -> dict[int, dict[str, DaySet]]:
    """Return {namespace: {name: calendar}} of the namespaces whose schedules name any."""
    namespace_ids = {namespace_id for namespace_id, spec in uses if spec.calendar.names}
    rows = await store.all_of(connection, namespace_ids)
    if not rows:
        return {}
    # Holidays take a second to load the first time, which nobody else should wait for.
    return await asyncio.to_thread(calendars_by_namespace, rows)


def put_together(rows: Iterable[CalendarRow]) -> dict[str, DaySet]:
    """Calendars with what they are put together from; `write_calendars` has refused rings."""
    specs = {row.name: spec for row in rows if (spec := _stored(row)) is not None}
    made: dict[str, DaySet] = {}

    def make(name: str, above: frozenset[str]) -> DaySet | None:
        if name not in made:
            if name not in specs or name in above:
                return None
            spec = specs[name]
            parts = (make(part, above | {name}) for part in spec.calendars)
            made[name] = DaySet(
                name=name,
                holidays=spec.holidays,
                dates=spec.dates,
                weekdays=spec.weekdays,
                calendars=tuple(part for part in parts if part is not None),
                except_days=spec.except_days,
                holiday_sets=_HOLIDAYS,
            )
        return made[name]

    for name in specs:
        make(name, frozenset())
    return made


def calendar_of(document: Mapping[str, Any]) -> CalendarSpec:
    """A calendar from plain data, such as the body of a request or what is stored."""
    specs = load_documents([raw_document(document)], kind=Kind.CALENDAR)
    return next(spec for spec in specs if isinstance(spec, CalendarSpec))


def _stored(row: CalendarRow) -> CalendarSpec | None:
    """None if it makes no sense any more: its own schedules wait then and say so, and no others do."""
    try:
        spec = _parsed(msgspec.json.encode(row.spec))
    except Invalid as error:
        detail = "; ".join(map(str, error.faults)) or error.message
        log.warning("A stored calendar cannot be read.", calendar=row.name, detail=detail)
        return None
    return spec


@lru_cache(maxsize=_MOST_PARSED)
def _parsed(document: bytes) -> CalendarSpec:
    return calendar_of(msgspec.json.decode(document))


def calendars_by_namespace(rows: Iterable[CalendarRow]) -> dict[int, dict[str, DaySet]]:
    """`rows` are in the order of their namespaces."""
    found = {}
    for namespace_id, these in groupby(rows, key=lambda row: row.namespace_id):
        found[namespace_id] = put_together(these)
        for calendar in found[namespace_id].values():
            for name in calendar.holidays:
                _HOLIDAYS.days(name, _ANY_YEAR)  # the first year of a country loads it
    return found
