"""Rows for tests that look at the tables themselves; real work enters through the store's verbs."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

from hetuflow_core import ids

AT = datetime(2026, 3, 1, 12, tzinfo=UTC)


def task_row(*, at: datetime = AT, status: str = "pending", **columns: Any) -> dict[str, Any]:
    finished = columns.pop("finished_at", at if status not in {"pending", "waiting_retry"} else None)
    return {
        "id": ids.task_of_schedule(uuid4(), at),
        "namespace_id": 1,
        "job_id": uuid4(),
        "job_version": 1,
        "status": status,
        "fire_at": at,
        "due_at": at,
        "finished_at": finished,
        **columns,
    }


def instance_row(*, at: datetime = AT, status: str = "pending", **columns: Any) -> dict[str, Any]:
    task = columns.pop("task_id", None) or ids.task_of_schedule(uuid4(), at)
    owner: dict[str, Any] = {}
    if status in {"reserved", "running"}:
        owner = {"token": uuid4(), "agent_id": uuid4(), "session_id": uuid4()}
        owner |= {"reserved_until": at} if status == "reserved" else {"lease_until": at, "started_at": at}
    return {
        "id": ids.instance_of(task, 1),
        "task_id": task,
        "namespace_id": 1,
        "placement_id": 1,
        "job_id": uuid4(),
        "job_version": 1,
        "seq": 1,
        "attempt": 1,
        "status": status,
        "priority": 500,
        "fire_at": at,
        "due_at": at,
        **owner,
        **columns,
    }


def insert(connection: Any, table: str, row: dict[str, Any]) -> UUID | None:
    columns = ", ".join(row)
    places = ", ".join(f"%({name})s" for name in row)
    connection.execute(f"INSERT INTO {table} ({columns}) VALUES ({places})", row)
    id_: UUID | None = row.get("id")
    return id_
