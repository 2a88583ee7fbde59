"""What agents say of themselves, as placement looks at it."""

from __future__ import annotations

from hetuflow_core import ids
from hetuflow_core.placement import AgentFacts, parse_taint
from hetuflow_server.agents.store import AgentSession


def facts_of(session: AgentSession) -> AgentFacts:
    """What placement looks at; another registration makes another version of it."""
    said = session.capabilities
    return AgentFacts(
        agent_id=session.id,
        version=ids.milliseconds(session.registered_at),
        labels=session.labels,
        taints=tuple(map(parse_taint, said.taints)),
        pools=frozenset(said.pools),
        capacity=said.resources,
        slots=session.slots,
        executors=frozenset(said.executors),
        run_as=frozenset(said.run_as),
    )
