"""Assignments as a server gives them, with everything filled in."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from uuid import uuid4

from hetuflow_core.messages import Assignment, RunSpec

TRACEPARENT = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"


def assignment_of(
    command: Sequence[str] | None = None,
    *,
    script: str | None = None,
    shell: str = "bash",
    env: Mapping[str, str] | None = None,
    workdir: str | None = None,
    user: str | None = None,
    timeout_ms: int | None = None,
    kill_grace_ms: int = 5_000,
    lease_ms: int = 300_000,
    on_lost: str = "kill",
    due_in_ms: int = 0,
    fire_at: int | None = None,
    slot: int | None = None,
) -> Assignment:
    now = int(time.time() * 1000)
    return Assignment(
        instance_id=uuid4(),
        task_id=uuid4(),
        token=uuid4(),
        claim_no=1,
        namespace="default",
        job="nightly",
        job_version=1,
        attempt=2,
        fire_at=now if fire_at is None else fire_at,
        due_at=now + due_in_ms,
        reserved_until=now + due_in_ms + 10_000,
        run=RunSpec(
            command=list(command) if command is not None else None,
            script=script,
            shell=shell,
            env=dict(env or {}),
            workdir=workdir,
            user=user,
        ),
        timeout_ms=timeout_ms,
        kill_grace_ms=kill_grace_ms,
        lease_ms=lease_ms,
        on_lost=on_lost,
        traceparent=TRACEPARENT,
        slot=slot,
    )
