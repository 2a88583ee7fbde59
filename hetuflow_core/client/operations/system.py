"""The REST calls about the system as a whole."""

from __future__ import annotations

from hetuflow_core.client.calls import get
from hetuflow_core.client.exchange import Plan
from hetuflow_core.resources.cluster import ServerInfo
from hetuflow_core.resources.status import QueueSummary


def info() -> Plan[ServerInfo]:
    return (yield from get("/system/info", ServerInfo))


def status(*, late_after: float | None = None, most: int | None = None) -> Plan[QueueSummary]:
    """What is queued and running right now, who runs it, what fails, what is late and what comes next.

    Work is late that has been due for `late_after` seconds (60); lists have up to `most` (10) items.
    """
    query = {"late_after": None if late_after is None else int(late_after), "most": most}
    return (yield from get("/system/status", QueueSummary, query=query))
