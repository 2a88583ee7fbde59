"""How busy the hosts of agents were, minute by minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any
from uuid import UUID

from hetuflow_core.messages import HostUsage
from hetuflow_core.resources.agents import HostSample
from hetuflow_server.postgres.connection import Connection

# Another server may have heard of the same agent within that minute; one of the two is enough.
_KEEP = """
INSERT INTO sched_agent_usage (agent_id, at, cpu_percent, load, memory_total, memory_available, disk_free)
SELECT h.agent_id, %(at)s, h.cpu_percent, h.load, h.memory_total, h.memory_available, h.disk_free
FROM unnest(%(agents)s::uuid[], %(cpu_percent)s::real[], %(load)s::real[], %(memory_total)s::bigint[],
            %(memory_available)s::bigint[], %(disk_free)s::bigint[])
  AS h(agent_id, cpu_percent, load, memory_total, memory_available, disk_free)
JOIN sched_agent a ON a.id = h.agent_id
ON CONFLICT DO NOTHING"""

SAMPLES = """
SELECT date_bin(make_interval(mins => %(minutes)s::integer), u.at, '1970-01-01T00:00Z') AS at,
       avg(u.cpu_percent) AS cpu_percent, avg(u.load) AS load, max(u.memory_total) AS memory_total,
       min(u.memory_available) AS memory_available, min(u.disk_free) AS disk_free
FROM sched_agent_usage u
WHERE u.agent_id = %(agent_id)s AND (%(since)s::timestamptz IS NULL OR u.at >= %(since)s)
  AND (%(before)s::timestamptz IS NULL OR u.at < %(before)s)
GROUP BY 1 ORDER BY 1 DESC LIMIT %(limit)s"""

_FORGET = "DELETE FROM sched_agent_usage WHERE agent_id = %(agent_id)s"


@dataclass(frozen=True, slots=True)
class SampleFilter:
    agent_id: UUID
    # How many minutes one sample sums up.
    minutes: int = 1
    since: datetime | None = None
    # The time of the last sample of the page before.
    before: datetime | None = None

    def parameters(self) -> dict[str, Any]:
        return {
            "agent_id": self.agent_id,
            "minutes": self.minutes,
            "since": self.since,
            "before": self.before,
        }


async def keep(connection: Connection, at: datetime, hosts: Sequence[tuple[UUID, HostUsage]]) -> None:
    """Keep one sample of each of these agents, all in one statement."""
    await connection.execute(
        _KEEP,
        {
            "at": at,
            "agents": [agent_id for agent_id, _ in hosts],
            "cpu_percent": [usage.cpu_percent for _, usage in hosts],
            "load": [usage.load for _, usage in hosts],
            "memory_total": [usage.memory_total for _, usage in hosts],
            "memory_available": [usage.memory_available for _, usage in hosts],
            "disk_free": [usage.disk_free for _, usage in hosts],
        },
    )


async def samples(connection: Connection, wanted: SampleFilter, limit: int) -> list[HostSample]:
    """Return what is known of an agent's host, the newest first."""
    rows = await connection.execute(SAMPLES, {**wanted.parameters(), "limit": limit})
    return [
        HostSample(
            at=row.at,
            cpu_percent=round(row.cpu_percent, 1),
            load=round(row.load, 2),
            memory_total=row.memory_total,
            memory_available=row.memory_available,
            disk_free=row.disk_free,
        )
        for row in rows
    ]


async def forget(connection: Connection, agent_id: UUID) -> None:
    await connection.execute(_FORGET, {"agent_id": agent_id})
