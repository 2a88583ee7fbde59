"""Flow runs in the REST API."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec


class FlowRun(msgspec.Struct, frozen=True):
    """One execution of a flow; its id is that of the flow's task."""

    id: UUID
    namespace: str
    job: str
    job_id: UUID
    job_version: int
    status: str
    # The final status of a run whose nodes are being ended.
    ending: str | None
    reason: str | None
    message: str | None
    params: dict[str, Any]
    priority: int
    # The run that contains this run as a node, and the run that this run retries.
    parent_id: UUID | None
    retry_of: UUID | None
    nodes_open: int
    nodes_failed: int
    fire_at: datetime
    started_at: datetime
    deadline_at: datetime | None
    finished_at: datetime | None


class FlowRunNode(msgspec.Struct, frozen=True):
    """The state of a node of a run; `layer` and `place` are its position in a drawing."""

    name: str
    # run, job, flow, approval, wait_until or wait_for_event
    does: str
    needs: list[str]
    trigger: str
    layer: int
    place: int
    status: str
    reason: str | None
    message: str | None
    # Tasks of the node: total, started, and by outcome.
    total: int
    started: int
    succeeded: int
    failed: int
    skipped: int
    output: Any
    # Set for a node with one task.
    task_id: UUID | None
    approvers: list[str]
    wake_at: datetime | None
    decided_by: str | None
    comment: str | None
    started_at: datetime | None
    finished_at: datetime | None


class FlowRunDetail(FlowRun, frozen=True):
    # In topological order.
    nodes: list[FlowRunNode] = []


class NodeDecision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """An optional comment on a decision about a node."""

    comment: str | None = None


class FlowRetry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How to retry a run: only the nodes that did not succeed, or the whole run."""

    whole: bool = False
