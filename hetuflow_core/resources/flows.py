"""Runs of flows as the REST API shows them."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec


class FlowRun(msgspec.Struct, frozen=True):
    """One execution of a flow's graph; its id is that of the flow's task."""

    id: UUID
    namespace: str
    job: str
    job_id: UUID
    job_version: int
    status: str
    # Set while everything is being ended: what the run will have ended as.
    ending: str | None
    reason: str | None
    message: str | None
    params: dict[str, Any]
    priority: int
    # The run it is a node of, and the run it builds upon.
    parent_id: UUID | None
    retry_of: UUID | None
    nodes_open: int
    nodes_failed: int
    fire_at: datetime
    started_at: datetime
    deadline_at: datetime | None
    finished_at: datetime | None


class FlowRunNode(msgspec.Struct, frozen=True):
    """Where a node of a run stands, and where it stands on paper: `place` in its `layer`."""

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
    # Its tasks: how many there will be, how many there are, and how they ended.
    total: int
    started: int
    succeeded: int
    failed: int
    skipped: int
    output: Any
    # Of a node with one task.
    task_id: UUID | None
    approvers: list[str]
    wake_at: datetime | None
    decided_by: str | None
    comment: str | None
    started_at: datetime | None
    finished_at: datetime | None


class FlowRunDetail(FlowRun, frozen=True):
    # In an order in which each comes behind what it needs.
    nodes: list[FlowRunNode] = []


class NodeDecision(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody says along with a decision about a node."""

    comment: str | None = None


class FlowRetry(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """How a run is repeated: from what failed, or as a whole."""

    whole: bool = False
