"""Tasks that are about to be made: whether they may be, and what they and their first instances are."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final, NamedTuple
from uuid import UUID

import msgspec

from hetuflow_core import ids
from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.resources.tasks import RunRequest, TaskInstance
from hetuflow_core.states import HeldReason, InstanceStatus, TaskStatus
from hetuflow_server.agents import store as agent_store
from hetuflow_server.cluster.hints import Topic, backlog_topic, flow_topic, namespace_topic
from hetuflow_server.jobs.versions import JobVersion
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue.rows import NewInstance, NewTask
from hetuflow_server.requests.audit_context import AuditContext

LOWEST_PRIORITY: Final = 0
HIGHEST_PRIORITY: Final = 1_000
_LONGEST_KEY: Final = 255


class Holder(NamedTuple):
    """Who has a task since it was made."""

    agent: str | None
    reserved_at: datetime


@dataclass(frozen=True, slots=True)
class CreatedTasks:
    """What a request to run was answered with: new tasks, and those that an earlier one had made."""

    version: JobVersion
    tasks: list[NewTask]
    # Of those that are new and as they were made.
    created_at: Mapping[UUID, datetime]
    # Whose the only one of them was made as.
    holder: Holder | None = None


def check(version: JobVersion, requests: Sequence[RunRequest], now: datetime) -> None:
    faults = []
    for place, request in enumerate(requests):
        where = f"runs[{place}]." if len(requests) > 1 else ""
        if request.priority is not None and not LOWEST_PRIORITY <= request.priority <= HIGHEST_PRIORITY:
            faults.append(Fault(f"{where}priority", "must be from 0 to 1000"))
        if request.run_at is not None and request.run_at.tzinfo is None:
            faults.append(Fault(f"{where}run_at", "needs an offset, as in 2026-12-31T23:59:00+01:00"))
        elif request.run_at is not None and not _in_the_calendar(request.run_at):
            faults.append(Fault(f"{where}run_at", "is beyond the years 1 to 9999 of the calendar"))
        if request.idempotency_key is not None and not 1 <= len(request.idempotency_key) <= _LONGEST_KEY:
            faults.append(Fault(f"{where}idempotency_key", f"has 1 to {_LONGEST_KEY} characters"))
        params = {**version.spec.params, **request.params}
        try:
            version.check(params, at=now)
        except Invalid as error:
            faults.append(Fault(f"{where}params", f"do not fit the job: {error.message}"))
    if faults:
        raise Invalid("This run cannot be accepted.", faults=faults)


def _in_the_calendar(at: datetime) -> bool:
    try:
        at.astimezone(UTC)
    except OverflowError:
        return False
    return True


def due(now: datetime, run_at: datetime | None) -> datetime:
    return now if run_at is None else max(now, run_at)


def note_tasks(audit: AuditContext, version: JobVersion, tasks: Sequence[NewTask]) -> None:
    if tasks:
        made = {"tasks": [str(task.id) for task in tasks], "version": version.version}
        audit.note_change("job", version.name, version.namespace, after=made)


async def targets(
    connection: Connection, version: JobVersion, requests: Sequence[RunRequest]
) -> dict[str, UUID]:
    """Return the ids of the agents that runs are to be bound to; refuse those that cannot take them."""
    names = {request.agent for request in requests if request.agent is not None}
    if not names:
        return {}
    known = await agent_store.targets(connection, sorted(names))
    faults = []
    for place, request in enumerate(requests):
        where = f"runs[{place}]." if len(requests) > 1 else ""
        if request.agent is None:
            continue
        if request.agent not in known:
            faults.append(Fault(f"{where}agent", f"there is no agent {request.agent}"))
        elif version.namespace not in known[request.agent][1]:
            faults.append(
                Fault(f"{where}agent", f"{request.agent} does not serve the namespace {version.namespace}")
            )
    if faults:
        raise Invalid("This run cannot be accepted.", faults=faults)
    return {name: known[name][0] for name in names}


def arrivals(instances: Sequence[NewInstance]) -> set[Topic]:
    """Where work has come; what is bound to an agent is looked for."""
    return {
        flow_topic(one.task_id)
        if one.held_reason is HeldReason.FLOW
        else namespace_topic(one.namespace_id)
        if one.target_agent_id is not None
        else backlog_topic(one.namespace_id, one.placement_id, one.priority)
        for one in instances
    }


def first_instance(task: NewTask, version: JobVersion, target: UUID | None) -> NewInstance:
    return NewInstance(
        id=ids.instance_of(task.id, 1),
        task_id=task.id,
        namespace_id=task.namespace_id,
        placement_id=version.placement_id,
        job_id=task.job_id,
        job_version=task.job_version,
        schedule_id=task.schedule_id,
        seq=1,
        attempt=1,
        priority=task.priority,
        fire_at=task.fire_at,
        due_at=task.due_at,
        deadline_at=task.deadline_at,
        lease_ms=version.lease_ms,
        concurrency_key=_key(task, version),
        target_agent_id=target,
        held_reason=version.held_at_first,
    )


def _key(task: NewTask, version: JobVersion) -> str | None:
    if version.spec.concurrency.key is None:
        return None
    params = msgspec.json.decode(task.params)
    return version.concurrency_key(params, task_id=task.id, fire_at=task.fire_at)


def shown_new(task: NewTask, made: CreatedTasks) -> dict[str, Any]:
    """Return a task that was just made, as reading it would show it."""
    version = made.version
    return {
        "id": task.id,
        "namespace": version.namespace,
        "job": version.name,
        "job_id": task.job_id,
        "job_version": task.job_version,
        "status": TaskStatus.PENDING.value,
        "reason": None,
        "params": msgspec.json.decode(task.params),
        "priority": task.priority,
        "fire_at": task.fire_at,
        "due_at": task.due_at,
        "attempts": 0,
        "losses": 0,
        "exit_code": None,
        "retry_of": task.retry_of,
        "created_by": task.created_by,
        "created_at": made.created_at[task.id],
        "finished_at": None,
    }


def shown_first(task: NewTask, holder: Holder | None) -> TaskInstance:
    status = InstanceStatus.PENDING if holder is None else InstanceStatus.RESERVED
    return TaskInstance(
        id=ids.instance_of(task.id, 1),
        task_id=task.id,
        seq=1,
        attempt=1,
        status=status.value,
        held_reason=None,
        priority=task.priority,
        due_at=task.due_at,
        agent=holder and holder.agent,
        target_agent=None,
        cancel_requested=False,
        reserved_at=holder and holder.reserved_at,
        started_at=None,
        finished_at=None,
        exit_code=None,
        signal=None,
        reason=None,
        message=None,
    )
