"""Ids are UUIDv7; where a duplicate must be impossible, a hash replaces the random bits.

The primary key prevents duplicates: two leaders that fire the same schedule for the same instant compute the
same task id, and the second insert conflicts with the first. The time bits are the time at which the work
entered the system, so a range of ids is a range of time; partitions and `since=` depend on that.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta
from enum import StrEnum
from functools import lru_cache
from hashlib import blake2b
from uuid import UUID

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_MAX_MILLISECONDS = (1 << 48) - 1
_VERSION_AND_VARIANT = (0x7 << 76) | (0b10 << 62)
_RANDOM_BITS = 74
_BEHIND_VARIANT = (1 << 62) - 1
_MICROSECOND = timedelta(microseconds=1)
# Length and type mark of a UUID.
_UUID_FRAME = (17).to_bytes(4, "big") + b"u"


class _Kind(StrEnum):
    """The purpose of a derived id; part of the hash, so ids of different kinds never collide."""

    SCHEDULE_FIRE = "schedule-fire"
    BACKFILL_FIRE = "backfill-fire"
    EVENT_FIRE = "event-fire"
    EVENT_WINDOW = "event-window"
    UPSTREAM_FIRE = "upstream-fire"
    FLOW_NODE = "flow-node"
    DAEMON_INCARNATION = "daemon-incarnation"
    REPEAT = "repeat"
    INSTANCE = "instance"
    LATE_REPORT = "late-report"


def new_id(at: datetime, random: bytes) -> UUID:
    """Return a random id; `random` is at least ten random bytes."""
    if len(random) * 8 < _RANDOM_BITS:
        raise ValueError("a new id needs at least ten random bytes")
    return _assemble(milliseconds(at), random)


def task_of_schedule(schedule: UUID, fire_at: datetime) -> UUID:
    return _derive(_Kind.SCHEDULE_FIRE, milliseconds(fire_at), schedule, fire_at)


def task_of_backfill(backfill: UUID, backfill_at: datetime, schedule: UUID, fire_at: datetime) -> UUID:
    """Return the id of a backfilled fire; its time is the backfill's, when the work enters the system."""
    return _derive(_Kind.BACKFILL_FIRE, milliseconds(backfill_at), backfill, schedule, fire_at)


def task_of_event(schedule: UUID, occurrence: UUID) -> UUID:
    """Return the id of the task an event schedule starts; `occurrence` is the event or the join window."""
    return _derive(_Kind.EVENT_FIRE, milliseconds_of(occurrence), schedule, occurrence)


def closed_window(window: UUID, closed_at: datetime) -> UUID:
    """Return the occurrence of a window that its deadline closed; its time is that of the close."""
    return _derive(_Kind.EVENT_WINDOW, milliseconds(closed_at), window)


def task_of_upstream(schedule: UUID, upstream: UUID, ended_at: datetime) -> UUID:
    """Return the id of the task an `after` schedule starts once `upstream` (a task or flow run) has ended.

    `ended_at` is the stored end, which never changes, so the id does not either.
    """
    return _derive(_Kind.UPSTREAM_FIRE, milliseconds(ended_at), schedule, upstream)


def task_of_flow_node(flow_run: UUID, node: str, map_index: int) -> UUID:
    """Return the id of a node's task; -1 is the map index of a node that is not mapped."""
    return _derive(_Kind.FLOW_NODE, milliseconds_of(flow_run), flow_run, node, map_index)


def task_of_daemon(schedule: UUID, slot: int, incarnation: int, started_at: datetime) -> UUID:
    return _derive(_Kind.DAEMON_INCARNATION, milliseconds(started_at), schedule, slot, incarnation)


def task_of_repeat(task: UUID, repetition: int, requested_at: datetime) -> UUID:
    """Return the id of a task's n-th repetition; n is counted under the task's row lock."""
    return _derive(_Kind.REPEAT, milliseconds(requested_at), task, repetition)


def instance_of(task: UUID, seq: int) -> UUID:
    """Return the id of a task's seq-th instance; its time is the task's, so their partitions agree."""
    return _derive(_Kind.INSTANCE, milliseconds_of(task), task, seq)


def late_report(instance: UUID, report: bytes) -> UUID:
    """Return the id of a report that arrived too late; a repeated identical report has the same id.

    The report contains the instance and the token; `instance` only provides the time.
    """
    digest = UUID(bytes=blake2b(report, digest_size=16).digest())
    return _derive(_Kind.LATE_REPORT, milliseconds_of(instance), digest)


def first_id_at(at: datetime) -> UUID:
    """Return the smallest possible id of that millisecond: the bound of a partition or of `since=`."""
    return UUID(int=milliseconds(at) << 80)


def range_of(ids: Iterable[UUID]) -> tuple[UUID, UUID]:
    """Return the smallest and largest possible ids of the time range that these ids span.

    An instance id has the time of its task, so the range also covers the tasks of these instances.
    """
    times = [milliseconds_of(id_) for id_ in ids] or [0]
    return UUID(int=min(times) << 80), UUID(int=((max(times) + 1) << 80) - 1)


def time_of(id_: UUID) -> datetime:
    return EPOCH + timedelta(milliseconds=milliseconds_of(id_))


def milliseconds_of(id_: UUID) -> int:
    return id_.int >> 80


def milliseconds(at: datetime) -> int:
    """Return whole milliseconds since the epoch; reject naive times and times out of range."""
    if at.tzinfo is None:
        raise ValueError("a time without an offset is ambiguous")
    since = at - EPOCH
    # Dividing by a timedelta takes three times as long, and a claim computes this three times per row.
    value = (since.days * 86_400 + since.seconds) * 1_000 + since.microseconds // 1_000
    if not 0 <= value <= _MAX_MILLISECONDS:
        raise ValueError(f"{at.isoformat()} is outside the range of ids")
    return value


class FireIds:
    """The task and instance ids of many schedules that fire at one instant, as bytes.

    Equal to `task_of_schedule` and `instance_of`, but the shared prefix is hashed only once: a generator
    derives two ids for each of a hundred thousand fires.
    """

    __slots__ = ("_common", "_fire_at", "_first", "_of_instance", "_of_schedule")

    def __init__(self, fire_at: datetime) -> None:
        self._common = milliseconds(fire_at) << 80 | _VERSION_AND_VARIANT
        self._of_schedule = _hash(_framed(_Kind.SCHEDULE_FIRE.value) + _UUID_FRAME)
        self._fire_at = _framed(fire_at)
        self._of_instance = _hash(_framed(_Kind.INSTANCE.value) + _UUID_FRAME)
        self._first = _framed(1)

    def of(self, schedule: bytes) -> tuple[bytes, bytes]:
        """Return the ids of a schedule's task and of that task's first instance."""
        hashed = self._of_schedule.copy()
        hashed.update(schedule + self._fire_at)
        task = _insert_hash(self._common, hashed.digest()).to_bytes(16, "big")
        hashed = self._of_instance.copy()
        hashed.update(task + self._first)
        return task, _insert_hash(self._common, hashed.digest()).to_bytes(16, "big")


def _derive(kind: _Kind, at_ms: int, *parts: UUID | datetime | str | int) -> UUID:
    return _assemble(at_ms, _hash(_framed(kind.value) + b"".join([_framed(part) for part in parts])).digest())


def _hash(hashed: bytes) -> blake2b:
    return blake2b(hashed, digest_size=16, person=b"hetuflow-id-v1")


def _framed(part: UUID | datetime | str | int) -> bytes:
    """Encode a value with its length and a type mark, so that the text "1" and the number 1 differ."""
    if isinstance(part, UUID):
        return _UUID_FRAME + part.int.to_bytes(16, "big")
    return _framed_scalar(part)


# Values other than UUIDs repeat: many schedules fire in the same second, and most instances are the first.
@lru_cache(maxsize=4_096, typed=True)
def _framed_scalar(part: datetime | str | int) -> bytes:
    if isinstance(part, datetime):
        encoded = b"t" + str((part - EPOCH) // _MICROSECOND).encode()
    elif isinstance(part, str):
        encoded = b"s" + part.encode()
    else:
        encoded = b"i" + str(part).encode()
    return len(encoded).to_bytes(4, "big") + encoded


def _assemble(at_ms: int, bits: bytes) -> UUID:
    return UUID(int=_insert_hash(at_ms << 80 | _VERSION_AND_VARIANT, bits))


def _insert_hash(common: int, bits: bytes) -> int:
    """Insert the first 74 bits of a hash: twelve before the variant, the others after it."""
    value = int.from_bytes(bits[:10], "big") >> (80 - _RANDOM_BITS)
    return common | value >> 62 << 64 | value & _BEHIND_VARIANT
