"""Derived ids: equal where the work is the same, different everywhere else, ordered by time."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from uuid import UUID

import pytest
from hypothesis import given, strategies as st

from hetuflow_core import ids

TIMES = st.integers(0, 253_000_000_000_000_000).map(lambda micros: ids.EPOCH + timedelta(microseconds=micros))
SCHEDULE = UUID("01890000-0000-7000-8000-000000000001")
AT = datetime(2026, 3, 29, 2, 30, tzinfo=UTC)


@given(TIMES, st.binary(min_size=10, max_size=16))
def test_every_id_is_a_uuid7_that_tells_its_time(at: datetime, random: bytes) -> None:
    id_ = ids.new_id(at, random)
    assert id_.version == 7
    assert id_.variant == "specified in RFC 4122"
    assert ids.time_of(id_) == at - timedelta(microseconds=at.microsecond % 1000)


@given(TIMES, TIMES, st.uuids())
def test_ids_sort_by_time_and_stay_in_their_range(one: datetime, other: datetime, schedule: UUID) -> None:
    first, second = sorted((one, other))
    assert ids.first_id_at(first) <= ids.task_of_schedule(schedule, first)
    if ids.milliseconds(first) < ids.milliseconds(second):
        assert ids.task_of_schedule(schedule, first) < ids.first_id_at(second)


@given(TIMES, st.uuids())
def test_the_ids_of_many_fires_are_those_of_each_of_them(fire_at: datetime, schedule: UUID) -> None:
    task = ids.task_of_schedule(schedule, fire_at)
    assert ids.FireIds(fire_at).of(schedule.bytes) == (task.bytes, ids.instance_of(task, 1).bytes)


def test_the_same_fire_gives_the_same_task_whatever_the_offset_it_is_written_in() -> None:
    written_elsewhere = AT.astimezone(timezone(timedelta(hours=5, minutes=30)))
    assert ids.task_of_schedule(SCHEDULE, AT) == ids.task_of_schedule(SCHEDULE, written_elsewhere)


def test_what_makes_work_different_makes_its_id_different() -> None:
    task = ids.task_of_schedule(SCHEDULE, AT)
    run = ids.new_id(AT, bytes(10))
    other = ids.new_id(AT, b"\xff" * 10)
    drawn = [
        task,
        ids.task_of_schedule(SCHEDULE, AT + timedelta(microseconds=1)),
        ids.task_of_schedule(run, AT),
        ids.task_of_backfill(run, AT, SCHEDULE, AT),
        ids.task_of_backfill(other, AT, SCHEDULE, AT),
        ids.task_of_event(SCHEDULE, run),
        ids.task_of_upstream(SCHEDULE, run, AT),
        ids.task_of_flow_node(run, "load", -1),
        ids.task_of_flow_node(run, "load", 0),
        ids.task_of_flow_node(run, "load1", 0),
        ids.task_of_daemon(SCHEDULE, 0, 1, AT),
        ids.task_of_daemon(SCHEDULE, 1, 0, AT),
        ids.task_of_repeat(task, 1, AT),
        ids.instance_of(task, 1),
        ids.instance_of(task, 2),
        ids.late_report(task, b"{}"),
        ids.late_report(task, b"[]"),
    ]
    assert len(set(drawn)) == len(drawn)


def test_a_backfill_enters_the_system_when_it_is_asked_for() -> None:
    asked = datetime(2026, 11, 16, tzinfo=UTC)
    assert ids.time_of(ids.task_of_backfill(SCHEDULE, asked, SCHEDULE, AT)) == asked


def test_instances_and_nodes_lie_in_the_partition_of_what_they_belong_to() -> None:
    task = ids.task_of_schedule(SCHEDULE, AT)
    assert ids.time_of(ids.instance_of(task, 7)) == AT
    assert ids.time_of(ids.task_of_flow_node(task, "load", 3)) == AT


def test_derivation_is_fixed_for_ever() -> None:
    """Servers of different versions must agree: a change here duplicates work in a rolling upgrade."""
    assert ids.task_of_schedule(SCHEDULE, AT) == UUID("019d376d-4040-715d-be40-dc7b6bba3118")
    assert ids.instance_of(SCHEDULE, 1) == UUID("01890000-0000-70f7-adb1-80bba38b1b53")


@pytest.mark.parametrize(
    "at",
    [datetime(2026, 1, 1), datetime(1969, 12, 31, tzinfo=UTC)],  # noqa: DTZ001 - the naive one is the point
)
def test_times_without_a_place_on_the_line_are_refused(at: datetime) -> None:
    with pytest.raises(ValueError, match=r"offset|range"):
        ids.task_of_schedule(SCHEDULE, at)


def test_a_new_id_needs_enough_randomness() -> None:
    with pytest.raises(ValueError, match="random bytes"):
        ids.new_id(AT, b"short")
