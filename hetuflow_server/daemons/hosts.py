"""The agents that daemons could be on; what each says of itself is read once per registration."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from hetuflow_core.daemon import DaemonAgent, DaemonHost
from hetuflow_core.placement import AgentFacts, VerdictCache
from hetuflow_core.states import AgentStatus
from hetuflow_server.daemons import store
from hetuflow_server.daemons.store import AgentRow, DaemonRow
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.placement.rules import placement
from hetuflow_server.postgres.database import Connection


@dataclass(frozen=True, slots=True)
class _KnownHost:
    registered_at: datetime
    facts: AgentFacts
    namespaces: frozenset[str]


class DaemonHosts:
    def __init__(self, classes: PlacementClasses) -> None:
        self._classes = classes
        self._verdicts = VerdictCache(placement())
        self._known: dict[UUID, _KnownHost] = {}

    async def read(self, connection: Connection, daemons: Iterable[DaemonRow]) -> Mapping[UUID, AgentRow]:
        """Return all agents, and get ready to tell which of them suit these daemons."""
        await self._classes.learn(connection, {daemon.placement_id for daemon in daemons})
        rows = {row.id: row for row in await store.agents(connection)}
        for id_ in self._known.keys() - rows.keys():
            del self._known[id_]
        unknown = [
            id_
            for id_, row in rows.items()
            if (known := self._known.get(id_)) is None or known.registered_at != row.registered_at
        ]
        if unknown:
            for session in await store.sessions(connection, unknown):
                self._known[session.id] = _KnownHost(
                    session.registered_at, session.facts, frozenset(session.capabilities.namespaces)
                )
        return rows

    def agents(
        self, daemon: DaemonRow, rows: Mapping[UUID, AgentRow], only: Collection[UUID] | None
    ) -> list[DaemonAgent]:
        """Return the agents a decision about a daemon looks at: all of them, or those of `only`."""
        wanted = rows.keys() if only is None else rows.keys() & only
        return [
            DaemonAgent(
                id=id_,
                fits=self._fits(daemon, rows[id_]),
                reachable=rows[id_].reachable,
                draining=rows[id_].status == AgentStatus.DRAINING,
            )
            for id_ in wanted
        ]

    async def hosts(
        self, connection: Connection, daemon: DaemonRow, rows: Mapping[UUID, AgentRow]
    ) -> list[DaemonHost]:
        """Return the agents that take work of a daemon now."""
        able = [id_ for id_, row in rows.items() if row.reachable and self._fits(daemon, row)]
        loads = await store.loads(connection, able) if able else {}
        return [DaemonHost(id_, self._known[id_].facts.slots, loads.get(id_, 0)) for id_ in able]

    def _fits(self, daemon: DaemonRow, row: AgentRow) -> bool:
        known = self._known.get(row.id)
        if known is None or row.status != AgentStatus.ONLINE or not row.has_session:
            return False
        requirements = self._classes.of(daemon.placement_id).requirements
        verdict = self._verdicts.of(daemon.placement_id, requirements, known.facts)
        return daemon.namespace in known.namespaces and verdict.refusal is None
