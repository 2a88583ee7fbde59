"""The verb that brings the fires of many schedules into being at once; beside `queue/transitions.py`, which
see.

Rows are written by COPY, in PostgreSQL's binary format. Nearly all of a row repeats from fire to fire and is
encoded once. A row begins with its id: sorted rows meet the pages of an index in order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields
from datetime import datetime
from typing import Final, NamedTuple

from psycopg.errors import UniqueViolation

from hetuflow_server.postgres.arrays import Instants
from hetuflow_server.postgres.batches import encode_fields
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.queue.rows import NewInstance, NewTask

_ID = b"\0\0\0\x10"  # the length of what follows
_SIGNATURE = b"PGCOPY\n\xff\r\n\0" + bytes(8)
_END = b"\xff\xff"

_TIMES: Final = ("fire_at", "due_at", "deadline_at")
_TASK_COMMON: Final = tuple(
    field.name for field in fields(NewTask) if field.name not in {"id", "schedule_id", *_TIMES}
)
_INSTANCE_COMMON: Final = tuple(
    field.name for field in fields(NewInstance) if field.name not in {"id", "task_id", "schedule_id", *_TIMES}
)
_TASK_COLUMNS = ("id", "schedule_id", *_TIMES, *_TASK_COMMON, "status")
_INSTANCE_COLUMNS = ("id", "task_id", "schedule_id", *_TIMES, *_INSTANCE_COMMON, "status")
_COPY_TASKS = f"COPY sched_task ({', '.join(_TASK_COLUMNS)}) FROM STDIN (FORMAT BINARY)"
_COPY_INSTANCES = f"COPY sched_task_instance ({', '.join(_INSTANCE_COLUMNS)}) FROM STDIN (FORMAT BINARY)"
_TASK_BEGINS = len(_TASK_COLUMNS).to_bytes(2, "big") + _ID
_INSTANCE_BEGINS = len(_INSTANCE_COLUMNS).to_bytes(2, "big") + _ID
_PENDING, _HELD = b"\0\0\0\x07pending", b"\0\0\0\x04held"


class AlreadyThere(Exception):
    """One of the tasks exists: nothing was written, and the transaction is over."""


class EncodedPart(NamedTuple):
    """A part of a task's row, and of the row of its first instance."""

    task: bytes
    instance: bytes


class FireRow(NamedTuple):
    task: bytes
    instance: bytes


def encode_common(task: NewTask, instance: NewInstance) -> EncodedPart:
    """Return what these share with all fires of the same job and the same rules."""
    status = _PENDING if instance.held_reason is None else _HELD
    return EncodedPart(
        encode_fields(NewTask, task, _TASK_COMMON) + _PENDING,
        encode_fields(NewInstance, instance, _INSTANCE_COMMON) + status,
    )


def encode_times(fire_at: datetime, due_at: datetime, deadline_at: datetime | None) -> bytes:
    """Return what all fires of the same instant share, tasks and instances alike."""
    return b"".join(Instants.elements((fire_at, due_at, deadline_at)))


def encode_fire(
    task_id: bytes, instance_id: bytes, schedule_id: bytes, times: bytes, common: EncodedPart
) -> FireRow:
    return FireRow(
        b"".join((_TASK_BEGINS, task_id, _ID, schedule_id, times, common.task)),
        b"".join((_INSTANCE_BEGINS, instance_id, _ID, task_id, _ID, schedule_id, times, common.instance)),
    )


async def create_fires(connection: Connection, rows: Sequence[FireRow]) -> None:
    """Insert tasks and their first instances, none of which exists; raise AlreadyThere when one does."""
    if not rows:
        return
    try:
        await connection.copy(_COPY_TASKS, _copied([row.task for row in rows]))
        await connection.copy(_COPY_INSTANCES, _copied([row.instance for row in rows]))
    except UniqueViolation as error:
        raise AlreadyThere from error


def _copied(rows: list[bytes]) -> bytes:
    rows.sort()
    return b"".join((_SIGNATURE, *rows, _END))
