"""Calendars that schedules name must be defined."""

from __future__ import annotations

from collections.abc import Sequence

from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_server.postgres.database import Connection
from hetuflow_server.schedules.calendars import store


async def refuse_undefined_calendars(
    connection: Connection, namespace_id: int, namespace: str, spec: ScheduleSpec, path: str
) -> None:
    """Refuse a schedule that names calendars there are not; the caller has locked its job."""
    defined = await store.keep(connection, namespace_id, spec.calendar.names)
    if missing := [name for name in spec.calendar.names if name not in defined]:
        raise undefined_calendars([undefined_calendar(path, namespace, missing[0])])


def undefined_calendar(path: str, namespace: str, name: str) -> Fault:
    message = f"the namespace {namespace} has no calendar {name}: define it with a document of kind calendar."
    return Fault(path, message)


def undefined_calendars(faults: Sequence[Fault]) -> Invalid:
    return Invalid(
        "Schedules name calendars that are not defined.", code="calendar.not_defined", faults=faults
    )
