"""Applying calendars, and what schedules say about them.

Before jobs, because calendars are locked before them: a schedule that names one finds it as it stays until
the commit.
"""

from __future__ import annotations

from collections.abc import Sequence

from hetuflow_core.jobfile import CalendarSpec, Document, JobSpec
from hetuflow_core.resources.apply import AppliedDocument
from hetuflow_server.identity import access_store
from hetuflow_server.postgres.database import Connection
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.schedules.calendars import store
from hetuflow_server.schedules.calendars.edits import write_calendars
from hetuflow_server.schedules.calendars.references import undefined_calendar, undefined_calendars
from hetuflow_server.schedules.consequences import Consequences
from hetuflow_server.schedules.edits import ScheduleEdits


async def apply_calendars(
    connection: Connection,
    edits: ScheduleEdits,
    audit: AuditContext,
    specs: Sequence[Document],
    noted: Consequences | None = None,
    also_locked: Sequence[tuple[str, str]] = (),
) -> list[AppliedDocument]:
    """Write the calendars of these documents; refuse schedules that name calendars there are not."""
    placed = {f"documents[{n}].": spec for n, spec in enumerate(specs) if isinstance(spec, CalendarSpec)}
    jobs = [(spec.namespace, spec.name) for spec in specs if isinstance(spec, JobSpec)]
    jobs += also_locked
    items = await write_calendars(connection, edits, audit, placed, jobs, noted)
    await _refuse_undefined(connection, specs)
    return items


async def _refuse_undefined(connection: Connection, specs: Sequence[Document]) -> None:
    named: dict[str, set[str]] = {}
    for spec in specs:
        if isinstance(spec, JobSpec):
            names = {name for schedule in spec.schedules for name in schedule.calendar.names}
            if names:
                named.setdefault(spec.namespace, set()).update(names)
    if not named:
        return
    namespaces = await access_store.namespace_ids(connection, sorted(named))
    defined = {
        namespace: await store.share(connection, namespaces[namespace], names)
        for namespace, names in sorted(named.items())
    }
    faults = [
        undefined_calendar(f"documents[{place}].schedules[{n}].calendar", spec.namespace, name)
        for place, spec in enumerate(specs)
        if isinstance(spec, JobSpec)
        for n, schedule in enumerate(spec.schedules)
        for name in schedule.calendar.names
        if name not in defined[spec.namespace]
    ]
    if faults:
        raise undefined_calendars(faults)
