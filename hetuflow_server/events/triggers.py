"""What edits of schedules mean for events: by which names they are found, and what they remember."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime

from hetuflow_core import ids
from hetuflow_core.events.windows import first_watch
from hetuflow_server.events import matching_store as store
from hetuflow_server.postgres.database import Connection
from hetuflow_server.schedules.edits import WrittenSchedule
from hetuflow_server.schedules.store import ScheduleRow


class EventTriggers:
    """An edit hook of schedules."""

    async def on_written(
        self, connection: Connection, schedules: Sequence[WrittenSchedule], now: datetime
    ) -> None:
        """Let events find what is written now, and forget what was remembered for something else."""
        edits = [edit for edit in schedules if _has_event(edit)]
        for namespace_id in sorted({edit.namespace_id for edit in edits}):
            here = [edit for edit in edits if edit.namespace_id == namespace_id]
            await _write(connection, namespace_id, here, now)

    async def on_removed(self, connection: Connection, schedules: Sequence[ScheduleRow]) -> None:
        """Let no event find deleted schedules."""
        if removed := [row.id for row in schedules if "event" in row.spec]:
            await store.forget_triggers(connection, removed)
            await store.forget_windows(connection, removed)


async def _write(
    connection: Connection, namespace_id: int, edits: Sequence[WrittenSchedule], now: datetime
) -> None:
    await store.forget_triggers(connection, [edit.id for edit in edits])
    await store.forget_windows(connection, [edit.id for edit in edits if not _continues(edit)])
    await store.write_triggers(
        connection,
        namespace_id,
        [
            (pattern, edit.id)
            for edit in edits
            if edit.spec.event is not None
            for pattern in sorted(edit.spec.event.names)
        ],
    )
    watches = {
        (edit.id, ""): window
        for edit in edits
        if edit.fires and edit.spec.event is not None
        if (window := first_watch(edit.spec.event, ids.new_id(now, secrets.token_bytes(10)), now)) is not None
    }
    watched = await store.windows(connection, watches) if watches else {}
    new = {key: window for key, window in watches.items() if key not in watched}
    await store.keep_windows(connection, new, {id_: namespace_id for id_, _ in new})


def _has_event(edit: WrittenSchedule) -> bool:
    return "event" in edit.document or (edit.before is not None and "event" in edit.before.spec)


def _continues(edit: WrittenSchedule) -> bool:
    """Whether what has been counted and collected still counts: `event` says the same as before.

    A schedule that was disabled has forgotten what it waited for, and begins anew.
    """
    before = edit.before
    return (
        edit.fires
        and before is not None
        and before.enabled
        and edit.document.get("event") == before.spec.get("event")
    )
