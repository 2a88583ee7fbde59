"""What people do with calendars: look, define, change, delete."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

from hetuflow_core.calendar import DaySet
from hetuflow_core.errors import Conflict, NotFound
from hetuflow_core.resources.schedules import Calendar as CalendarResource, CalendarDay
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.http.entity_tags import refuse_stale
from hetuflow_server.identity import access_store
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.schedules.calendars import store
from hetuflow_server.schedules.calendars.edits import dependents, write_calendars
from hetuflow_server.schedules.calendars.resolved import calendar_of, put_together
from hetuflow_server.schedules.edits import ScheduleEdits

_DAY = timedelta(days=1)
# Whoever deletes one that is used is told of so many users.
_MOST_USERS_TOLD = 3


class CalendarActions:
    def __init__(self, database: Database, clock: Clock, edits: ScheduleEdits) -> None:
        self._database = database
        self._clock = clock
        self._edits = edits

    async def list_calendars(
        self,
        context: RequestContext,
        *,
        namespace: str | None,
        after: tuple[str, str] | None,
        limit: int,
        cap: int,
    ) -> tuple[list[CalendarResource], int]:
        """Return one more than `limit` when there are more, and the total up to just over the cap."""
        namespaces = context.reach(namespace)
        async with self._database.transaction(context) as connection:
            found = await store.list_calendars(
                connection, namespaces=namespaces, after=after, limit=limit + 1
            )
            return found, await store.count_calendars(connection, namespaces, cap + 1)

    async def calendar(self, context: RequestContext, namespace: str, name: str) -> CalendarResource:
        async with self._database.transaction(context) as connection:
            return await _find(connection, context, namespace, name)

    async def days(
        self, context: RequestContext, namespace: str, name: str, year: int | None
    ) -> list[CalendarDay]:
        """Return the days of a year, and what makes each one of them."""
        async with self._database.transaction(context) as connection:
            await _find(connection, context, namespace, name)
            namespace_id = (await access_store.namespace_ids(connection, [namespace]))[namespace]
            rows = await store.all_of(connection, [namespace_id])
        calendar = (await asyncio.to_thread(put_together, rows)).get(name)
        if calendar is None:
            raise Conflict(
                f"The calendar {name} cannot be read any more: apply it anew.", code="calendar.unreadable"
            )
        return await asyncio.to_thread(_days_of_year, calendar, year or self._clock.now().year)

    async def create(self, context: RequestContext, document: Mapping[str, Any]) -> CalendarResource:
        """Define a calendar that is not there yet; the rules are those of a document of kind `calendar`."""
        spec = await asyncio.to_thread(calendar_of, document)
        async with self._database.transaction(context) as connection:
            namespace_id = await _namespace(connection, context, spec.namespace)
            if spec.name in await store.lock(connection, namespace_id):
                raise Conflict(
                    f"The namespace {spec.namespace} has a calendar {spec.name} already: change it.",
                    code="calendar.exists",
                )
            await write_calendars(connection, self._edits, context.audit, {"": spec})
            return await _find(connection, context, spec.namespace, spec.name)

    async def change(
        self,
        context: RequestContext,
        namespace: str,
        name: str,
        changes: Mapping[str, Any],
        *,
        if_match: str | None = None,
    ) -> CalendarResource:
        """Merge keys into a calendar; null takes one back to its default.

        With `if_match`, the ETag of what was read, only if nobody has changed it since.
        """
        async with self._database.transaction(context) as connection:
            namespace_id = await _namespace(connection, context, namespace)
            known = (await store.lock(connection, namespace_id)).get(name)
            if known is None:
                raise _no_calendar(namespace, name)
            refuse_stale(await _find(connection, context, namespace, name), if_match)
            merged = {**known.spec, **changes, "namespace": namespace, "name": name}
            spec = await asyncio.to_thread(calendar_of, merged)
            await write_calendars(connection, self._edits, context.audit, {"": spec})
            return await _find(connection, context, namespace, name)

    async def delete(self, context: RequestContext, namespace: str, name: str) -> None:
        """Delete a calendar that no schedule and no other calendar names."""
        async with self._database.transaction(context) as connection:
            namespace_id = await _namespace(connection, context, namespace)
            await delete_calendar(connection, context.audit, namespace_id, namespace, name)


async def delete_calendar(
    connection: Connection, audit: AuditContext, namespace_id: int, namespace: str, name: str
) -> None:
    """Delete a calendar within a transaction; refuse if a schedule or another calendar names it."""
    known = await store.lock(connection, namespace_id)
    if not await store.lock_for_deletion(connection, namespace_id, name):
        raise _no_calendar(namespace, name)
    others = sorted(dependents(known.values(), [name]) - {name})
    found = await store.users(connection, namespace_id, [name], _MOST_USERS_TOLD)
    using = [f"the calendar {other}" for other in others] + [f"{one.job}/{one.name}" for one in found]
    if using:
        raise Conflict(
            f"The calendar {name} is used by {', '.join(using)}: take it out there first.",
            code="calendar.in_use",
        )
    audit.note_change("calendar", name, namespace, before=known[name].spec)
    await store.delete(connection, namespace_id, name)


async def _namespace(connection: Connection, context: RequestContext, namespace: str) -> int:
    context.require_namespace(namespace)
    return (await access_store.namespace_ids(connection, [namespace]))[namespace]


async def _find(
    connection: Connection, context: RequestContext, namespace: str, name: str
) -> CalendarResource:
    found = await store.list_calendars(connection, namespaces=[namespace], name=name, limit=1)
    if not found or not context.sees(namespace):
        raise _no_calendar(namespace, name)
    return found[0]


def _no_calendar(namespace: str, name: str) -> NotFound:
    return NotFound(f"The namespace {namespace} has no calendar {name}.", code="calendar.not_found")


def _days_of_year(calendar: DaySet, year: int) -> list[CalendarDay]:
    first = date(year, 1, 1)
    days = (first + n * _DAY for n in range((date(year + 1, 1, 1) - first).days))
    return [CalendarDay(day, why) for day in days if (why := calendar.why(day)) is not None]
