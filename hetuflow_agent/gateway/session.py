"""One process life of the agent, as the server sees it."""

from __future__ import annotations

from dataclasses import dataclass
from uuid import UUID


@dataclass(slots=True)
class Session:
    """One process life of this agent; the server fills in its wishes at registration."""

    session_id: UUID
    heartbeat_every: float = 5.0
    poll_wait_ms: int = 20_000
    agent_id: UUID | None = None
    # What the server says is still ours of what an earlier session ran.
    adopted: frozenset[UUID] = frozenset()
