"""What hosts say of themselves, summed up by the minute."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from hetuflow_core.messages import HostUsage


@dataclass(slots=True)
class _Minute:
    said: int
    cpu_percent: float
    load: float
    last: HostUsage
    memory_available: int
    disk_free: int


class HostSamples:
    """One sample of each host that has said something within a minute: means, and the least that was free."""

    def __init__(self) -> None:
        self._minute: datetime | None = None
        self._hosts: dict[UUID, _Minute] = {}

    def note(self, agent_id: UUID, usage: HostUsage) -> None:
        found = self._hosts.get(agent_id)
        if found is None:
            self._hosts[agent_id] = _Minute(
                1, usage.cpu_percent, usage.load, usage, usage.memory_available, usage.disk_free
            )
            return
        found.said += 1
        found.cpu_percent += usage.cpu_percent
        found.load += usage.load
        found.last = usage
        found.memory_available = min(found.memory_available, usage.memory_available)
        found.disk_free = min(found.disk_free, usage.disk_free)

    def take(self, now: datetime) -> tuple[datetime, list[tuple[UUID, HostUsage]]] | None:
        """The minute that is over and its samples; None while it lasts, or if nobody said anything."""
        minute = now.replace(second=0, microsecond=0)
        before, self._minute = self._minute, minute
        if before is None or minute <= before or not self._hosts:
            return None
        hosts, self._hosts = self._hosts, {}
        return before, [(agent_id, _summed_up(one)) for agent_id, one in sorted(hosts.items())]


def _summed_up(one: _Minute) -> HostUsage:
    return HostUsage(
        cpu_percent=one.cpu_percent / one.said,
        load=one.load / one.said,
        memory_total=one.last.memory_total,
        memory_available=one.memory_available,
        disk_free=one.disk_free,
    )
