"""What edits of schedules mean for events: by which names they are found, and what they remember."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.events.windows import first_watch
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_server.events import matching_store as store
from hetuflow_server.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class Edit:
    """A schedule that has been written; the caller has locked it."""

    schedule_id: UUID
    spec: ScheduleSpec
    # Whether it and its job are enabled.
    fires: bool
    # Whether `event` says the same as before: what has been counted and collected goes on to count.
    goes_on: bool = False


async def follow(connection: Connection, namespace_id: int, edits: Sequence[Edit], now: datetime) -> None:
    """Let events find what is written now, and forget what was remembered for something else."""
    if not edits:
        return
    await store.forget_triggers(connection, [edit.schedule_id for edit in edits])
    await store.forget_windows(
        connection, [edit.schedule_id for edit in edits if not (edit.goes_on and edit.fires)]
    )
    await store.write_triggers(
        connection,
        namespace_id,
        [
            (pattern, edit.schedule_id)
            for edit in edits
            if edit.spec.event is not None
            for pattern in sorted(edit.spec.event.names)
        ],
    )
    watches = {
        (edit.schedule_id, ""): window
        for edit in edits
        if edit.fires and edit.spec.event is not None
        if (window := first_watch(edit.spec.event, ids.new_id(now, secrets.token_bytes(10)), now)) is not None
    }
    watched = await store.windows(connection, watches) if watches else {}
    new = {key: window for key, window in watches.items() if key not in watched}
    await store.keep_windows(connection, new, {id_: namespace_id for id_, _ in new})


async def forget(connection: Connection, schedules: Sequence[UUID]) -> None:
    """Let no event find deleted schedules."""
    if schedules:
        await store.forget_triggers(connection, schedules)
        await store.forget_windows(connection, schedules)
