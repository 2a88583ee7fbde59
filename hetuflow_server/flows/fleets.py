"""The agents of a fleet: all that fit, whether they are busy or not."""

from __future__ import annotations

from uuid import UUID

from hetuflow_core.placement import Requirements
from hetuflow_server.agents import store as agent_store
from hetuflow_server.placement.rules import placement
from hetuflow_server.postgres.database import Connection


async def agents(
    connection: Connection, namespace: str, requirements: Requirements
) -> list[tuple[UUID, str]]:
    """Return (id, name) of the agents that serve the namespace and fit, by name."""
    found = await agent_store.serving(connection, namespace)
    rules = placement()
    return [(one.id, one.name) for one in found if rules.verdict(requirements, one.facts).refusal is None]
