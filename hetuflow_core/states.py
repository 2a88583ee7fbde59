"""The statuses of tasks and task instances and the transitions between them.

`docs/explanation/architecture.md` draws these state machines; a test compares it with the tables below.
The `running` of a task is derived from its live instance and never stored, so it is not a `TaskStatus`.
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

    # The schedule does not allow overlapping fires; the decision is made when the instance is due.
    OVERLAP = "overlap"
    # The instance is due and waits for the previous fire to end.
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
    # The node waits for its upstream nodes.
    WAITING = "waiting"
    # The node has started: it has unfinished tasks, or waits for an approval, an event or a time.
    RUNNING = "running"
    SUCCEEDED = "succeeded"
    FAILED = "failed"
    CANCELLED = "cancelled"
    SKIPPED = "skipped"


class AgentStatus(StrEnum):
    """The administrative status of an agent; its reachability is derived from last_seen_at."""

    PENDING = "pending"
    ONLINE = "online"
    DRAINING = "draining"
    OFFLINE = "offline"


TASK_TERMINAL = frozenset(
    {TaskStatus.SUCCEEDED, TaskStatus.FAILED, TaskStatus.CANCELLED, TaskStatus.SKIPPED},
)

# Statuses of instances in the queue table; all other statuses are terminal and stored in the history.
INSTANCE_LIVE = frozenset(
    {InstanceStatus.HELD, InstanceStatus.PENDING, InstanceStatus.RESERVED, InstanceStatus.RUNNING},
)
INSTANCE_TERMINAL = frozenset(InstanceStatus) - INSTANCE_LIVE

FLOW_RUN_TERMINAL = frozenset(FlowRunStatus) - {FlowRunStatus.RUNNING}
FLOW_NODE_TERMINAL = frozenset(FlowNodeStatus) - {FlowNodeStatus.WAITING, FlowNodeStatus.RUNNING}

TASK_TRANSITIONS: dict[TaskStatus, frozenset[TaskStatus]] = {
    TaskStatus.PENDING: frozenset({TaskStatus.WAITING_RETRY}) | TASK_TERMINAL,
    # Stored until the retry has ended; whether the retry is due or running is derived from its live instance.
    TaskStatus.WAITING_RETRY: frozenset({TaskStatus.PENDING}) | TASK_TERMINAL,
    **{status: frozenset() for status in TASK_TERMINAL},
}

# A reserved instance may end in any way without having been running: short in-process work finishes directly.
# An expired reservation returns to pending without spending an attempt. So does a started instance that its
# agent releases before the process begins.
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
