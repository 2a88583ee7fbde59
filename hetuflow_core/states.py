"""The statuses of tasks and task instances and the ways between them.

`docs/explanation/architecture.md` draws these machines; a test compares the drawing with the tables below.
The `running` of a task is shown from its live instance and never stored, so it is not a `TaskStatus`.
"""

from __future__ import annotations

from enum import StrEnum


class TaskStatus(StrEnum):
    PENDING = "pending"
    WAITING_RETRY = "waiting_retry"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class InstanceStatus(StrEnum):
    HELD = "held"
    PENDING = "pending"
    RESERVED = "reserved"
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    TIMED_OUT = "timed_out"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"
    LOST = "lost"


class HeldReason(StrEnum):
    """Why an instance may not be claimed yet."""

    # Its schedule lets no two fires run at once: whether it may is decided when it is due.
    OVERLAP = "overlap"
    # It is due and waits for the fire before it.
    QUEUE = "queue"
    KEY = "key"
    PAUSED = "paused"
    FLOW = "flow"


class ScheduleKind(StrEnum):
    CRON = "cron"
    TIME = "time"
    DAEMON = "daemon"
    EVENT = "event"
    FLOW = "flow"


class FlowRunStatus(StrEnum):
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"


class FlowNodeStatus(StrEnum):
    # For its upstreams.
    WAITING = "waiting"
    # It was started: its tasks wait or run, or it waits for a person, an event or a time.
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class AgentStatus(StrEnum):
    """What was decided about an agent; whether it is reachable follows from its last_seen_at."""

    PENDING = "pending"
    ONLINE = "online"
    DRAINING = "draining"
    OFFLINE = "offline"


TASK_TERMINAL = frozenset(
    {TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.SKIPPED},
)

# What an instance still in the queue table may be; every other status is terminal and lives in the history.
INSTANCE_LIVE = frozenset(
    {InstanceStatus.HELD, InstanceStatus.PENDING, InstanceStatus.RESERVED, InstanceStatus.RUNNING},
)
INSTANCE_TERMINAL = frozenset(InstanceStatus) - INSTANCE_LIVE

FLOW_RUN_TERMINAL = frozenset(FlowRunStatus) - {FlowRunStatus.RUNNING}
FLOW_NODE_TERMINAL = frozenset(FlowNodeStatus) - {FlowNodeStatus.WAITING, FlowNodeStatus.RUNNING}

TASK_TRANSITIONS: dict[TaskStatus, frozenset[TaskStatus]] = {
    TaskStatus.PENDING: frozenset({TaskStatus.WAITING_RETRY}) | TASK_TERMINAL,
    # Stored until the retry has ended; that it is due or running again is shown from its live instance.
    TaskStatus.WAITING_RETRY: frozenset({TaskStatus.PENDING}) | TASK_TERMINAL,
    **{status: frozenset() for status in TASK_TERMINAL},
}

# A reserved instance may end in any way without having been running: short in-process work finishes directly,
# and a reservation that expires returns to pending with nothing spent. So does an instance whose start was
# committed and whose agent gives it back before anything has begun.
INSTANCE_TRANSITIONS: dict[InstanceStatus, frozenset[InstanceStatus]] = {
    InstanceStatus.HELD: frozenset(
        {InstanceStatus.PENDING, InstanceStatus.CANCELLED, InstanceStatus.SKIPPED},
    ),
    InstanceStatus.PENDING: frozenset(
        {InstanceStatus.HELD, InstanceStatus.RESERVED, InstanceStatus.CANCELLED, InstanceStatus.SKIPPED},
    ),
    InstanceStatus.RESERVED: frozenset({InstanceStatus.PENDING, InstanceStatus.RUNNING}) | INSTANCE_TERMINAL,
    InstanceStatus.RUNNING: frozenset({InstanceStatus.PENDING}) | INSTANCE_TERMINAL,
    **{status: frozenset() for status in INSTANCE_TERMINAL},
}
