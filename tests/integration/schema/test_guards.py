"""Wrong data is impossible: the database itself refuses it, whoever writes."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from tests.support.postgres.rows import AT, insert, instance_row, task_row


@pytest.fixture
def connection(database_url: str) -> Iterator[psycopg.Connection[Any]]:
    with psycopg.connect(database_url, autocommit=True) as open_connection:
        yield open_connection


@pytest.mark.parametrize("status", ["held", "pending", "reserved", "running"])
def test_a_live_instance_may_have_each_live_status(connection: psycopg.Connection[Any], status: str) -> None:
    held = {"held_reason": "overlap"} if status == "held" else {}
    assert insert(connection, "sched_task_instance", instance_row(status=status, **held)) is not None


def test_a_flow_runs_without_an_agent(connection: psycopg.Connection[Any]) -> None:
    nobody = dict.fromkeys(("token", "agent_id", "session_id", "lease_until"))
    insert(connection, "sched_task_instance", instance_row(status="running", **nobody))


WRONG_INSTANCES = {
    "finished in the queue": instance_row(status="pending") | {"status": "succeeded"},
    "held without a reason": instance_row(status="pending") | {"status": "held"},
    "a reason without being held": instance_row(held_reason="overlap"),
    "an unknown reason": instance_row(status="held", held_reason="mood"),
    "reserved by nobody": instance_row(status="reserved") | {"agent_id": None},
    "reserved without a token": instance_row(status="reserved") | {"token": None},
    "reserved for ever": instance_row(status="reserved") | {"reserved_until": None},
    "running without a lease": instance_row(status="running") | {"lease_until": None},
    "running, never started": instance_row(status="running") | {"started_at": None},
    "pending with a token": instance_row(token=uuid4()),
    "priority out of range": instance_row(priority=1001),
    "a lease too short to keep": instance_row(lease_ms=3_999),
    "attempt zero": instance_row(attempt=0),
}


@pytest.mark.parametrize("row", WRONG_INSTANCES.values(), ids=WRONG_INSTANCES.keys())
def test_an_impossible_instance_is_refused(connection: psycopg.Connection[Any], row: dict[str, Any]) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        insert(connection, "sched_task_instance", row)


WRONG_TASKS = {
    "running is shown, never stored": task_row() | {"status": "running"},
    "finished without an end": task_row(status="succeeded", finished_at=None),
    "an end without being finished": task_row(finished_at=AT),
    "due before it fires": task_row(due_at=AT - timedelta(seconds=1)),
    "priority out of range": task_row(priority=-1),
}


@pytest.mark.parametrize("row", WRONG_TASKS.values(), ids=WRONG_TASKS.keys())
def test_an_impossible_task_is_refused(connection: psycopg.Connection[Any], row: dict[str, Any]) -> None:
    with pytest.raises(psycopg.errors.CheckViolation):
        insert(connection, "sched_task", row)


@pytest.mark.parametrize("status", ["succeeded", "failed", "cancelled", "skipped"])
def test_a_finished_task_stays_as_it_ended(connection: psycopg.Connection[Any], status: str) -> None:
    task = insert(connection, "sched_task", task_row(status=status))
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="never changes"):
        connection.execute(
            "UPDATE sched_task SET status = 'pending', finished_at = NULL WHERE id = %s", [task]
        )
    connection.execute("UPDATE sched_task SET reason = 'noted' WHERE id = %s", [task])


def test_a_finished_instance_stays_as_it_ended(connection: psycopg.Connection[Any]) -> None:
    row = instance_row(finished_at=AT) | {"status": "failed"}
    instance = insert(connection, "sched_task_instance_history", row)
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="never changes"):
        connection.execute(
            "UPDATE sched_task_instance_history SET status = 'succeeded' WHERE id = %s", [instance]
        )
    with pytest.raises(psycopg.errors.CheckViolation):
        insert(connection, "sched_task_instance_history", instance_row(finished_at=AT))


def test_one_task_per_fire_and_one_instance_per_attempt(connection: psycopg.Connection[Any]) -> None:
    task, instance = task_row(), instance_row()
    insert(connection, "sched_task", task)
    insert(connection, "sched_task_instance", instance)
    with pytest.raises(psycopg.errors.UniqueViolation):
        insert(connection, "sched_task", task)
    with pytest.raises(psycopg.errors.UniqueViolation):
        insert(connection, "sched_task_instance", instance)


def test_a_daemon_has_one_live_instance_per_slot(connection: psycopg.Connection[Any]) -> None:
    schedule = uuid4()
    insert(connection, "sched_task_instance", instance_row(schedule_id=schedule, slot=0))
    insert(connection, "sched_task_instance", instance_row(schedule_id=schedule, slot=1))
    with pytest.raises(psycopg.errors.UniqueViolation):
        insert(connection, "sched_task_instance", instance_row(schedule_id=schedule, slot=0))


@pytest.mark.parametrize("table", ["distributed_lock", "leader_fence"])
def test_an_epoch_never_decreases_and_its_row_never_goes(
    connection: psycopg.Connection[Any], table: str
) -> None:
    holder, other = uuid4(), uuid4()
    insert(
        connection,
        "distributed_lock",
        {"name": "scheduler_leader", "holder": holder, "epoch": 3, "expires_at": AT},
    )
    insert(connection, "leader_fence", {"name": "scheduler_leader", "holder": holder, "epoch": 3})
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="never decreases"):
        connection.execute(f"UPDATE {table} SET epoch = 2")
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="never changes its holder"):
        connection.execute(f"UPDATE {table} SET holder = %s", [other])
    with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="never deleted"):
        connection.execute(f"DELETE FROM {table}")
    connection.execute(f"UPDATE {table} SET holder = %s, epoch = 4", [other])


def test_a_binding_changes_its_epoch_with_its_server_and_only_then(
    connection: psycopg.Connection[Any],
) -> None:
    servers = [uuid4(), uuid4()]
    for server in servers:
        insert(connection, "sched_server", {"id": server, "hostname": "h", "version": "1"})
    insert(connection, "sched_namespace_binding", {"namespace_id": 1, "server_id": servers[0]})
    for change in (f"server_id = '{servers[1]}'", "epoch = 2", "epoch = 0", "pinned = true"):
        with pytest.raises(psycopg.errors.IntegrityError):
            connection.execute(f"UPDATE sched_namespace_binding SET {change}")
    connection.execute("UPDATE sched_namespace_binding SET pinned = true, pinned_to = 'h'")
    connection.execute(f"UPDATE sched_namespace_binding SET server_id = '{servers[1]}', epoch = 2")


def test_only_cron_and_time_schedules_have_a_cursor(connection: psycopg.Connection[Any]) -> None:
    job = insert(connection, "sched_job", {"id": uuid4(), "namespace_id": 1, "name": "j", "version": 1})
    base = {"namespace_id": 1, "job_id": job, "name": "s", "spec": "{}"}
    for wrong in (
        {"kind": "cron"},
        {"kind": "event", "cursor": AT},
        {"kind": "cron", "cursor": AT, "next_fire_at": AT},
        {"kind": "sundial"},
    ):
        with pytest.raises(psycopg.errors.CheckViolation):
            insert(connection, "sched_schedule", base | wrong | {"id": uuid4()})
    insert(connection, "sched_schedule", base | {"id": uuid4(), "kind": "cron", "cursor": AT})


def test_a_deleted_job_frees_its_name(connection: psycopg.Connection[Any]) -> None:
    row = {"namespace_id": 1, "name": "nightly", "version": 1}
    insert(connection, "sched_job", row | {"id": uuid4(), "deleted_at": AT})
    insert(connection, "sched_job", row | {"id": uuid4()})
    with pytest.raises(psycopg.errors.UniqueViolation):
        insert(connection, "sched_job", row | {"id": uuid4()})


def test_readers_see_live_and_finished_instances_through_one_view(
    connection: psycopg.Connection[Any],
) -> None:
    live = insert(connection, "sched_task_instance", instance_row(status="running"))
    done = insert(
        connection,
        "sched_task_instance_history",
        instance_row(finished_at=AT, exit_code=3) | {"status": "failed"},
    )
    rows = connection.execute("SELECT id, status, exit_code FROM sched_task_instance_all").fetchall()
    assert set(rows) == {(live, "running", None), (done, "failed", 3)}
