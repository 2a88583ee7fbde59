"""The REST calls that ask why."""

from __future__ import annotations

from uuid import UUID

from hetuflow_core.client.calls import get, segment
from hetuflow_core.client.exchange import Plan
from hetuflow_core.resources.explanations import Explanation


def explain(task_id: UUID | str) -> Plan[Explanation]:
    """Why a task is where it is: what stands in its way, agent by agent, and what would let it run."""
    return (yield from get(f"/tasks/{segment(task_id)}/explain", Explanation))
