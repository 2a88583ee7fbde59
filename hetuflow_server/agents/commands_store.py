"""Commands to agents as rows: issued once, delivered until acknowledged, given up in the end."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.agent.commands import (
    FIRST_PAUSE,
    LIFETIMES,
    LONGEST_PAUSE,
    MODE_COMMANDS,
    MOST_ATTEMPTS,
    CommandKind,
)
from hetuflow_core.resources.agents import AgentCommand
from hetuflow_server.postgres.connection import Connection

_ISSUE = """
INSERT INTO sched_agent_command (id, agent_id, kind, payload, state, created_by, next_attempt_at, expires_at)
VALUES (%(id)s, %(agent_id)s, %(kind)s, %(payload)s::jsonb, 'pending', %(created_by)s, clock_timestamp(),
        clock_timestamp() + %(lifetime)s)"""

_SUPERSEDE = """
UPDATE sched_agent_command
SET state = 'superseded', ended_at = clock_timestamp(), error = 'A later command says otherwise.'
WHERE agent_id = %(agent_id)s AND state IN ('pending', 'delivered') AND kind = ANY(%(kinds)s)"""

# What was meant for a process that is gone; the next one must not be stopped by it.
_OUTLIVED = """
UPDATE sched_agent_command c
SET state = 'superseded', ended_at = clock_timestamp(), error = 'The process it was meant for is gone.'
FROM sched_agent a
WHERE a.name = %(name)s AND a.session_id IS DISTINCT FROM %(session_id)s AND c.agent_id = a.id
  AND c.state IN ('pending', 'delivered') AND c.kind IN ('shutdown', 'metrics')"""

# The oldest first; each delivery doubles the pause until the next.
_DELIVER = """
WITH due AS (
  SELECT id FROM sched_agent_command
  WHERE agent_id = %(agent_id)s AND state IN ('pending', 'delivered') AND attempts < %(most)s
    AND next_attempt_at <= clock_timestamp() AND expires_at > clock_timestamp()
  ORDER BY id LIMIT 20 FOR UPDATE SKIP LOCKED)
UPDATE sched_agent_command c
SET state = 'delivered', attempts = attempts + 1, delivered_at = clock_timestamp(),
    next_attempt_at = clock_timestamp() + least(%(first)s * power(2, attempts), %(longest)s)
FROM due WHERE c.id = due.id AND c.state IN ('pending', 'delivered')
RETURNING c.id, c.kind, c.payload"""

_ACKNOWLEDGE = """
UPDATE sched_agent_command c
SET state = 'acknowledged', ended_at = clock_timestamp(), result = r.result::jsonb, error = r.error
FROM unnest(%(ids)s::uuid[], %(results)s::text[], %(errors)s::text[]) AS r(id, result, error)
WHERE c.id = r.id AND c.agent_id = %(agent_id)s AND c.state IN ('pending', 'delivered', 'dead')"""

_GIVE_UP = """
UPDATE sched_agent_command
SET state = 'dead', ended_at = clock_timestamp(),
    error = CASE WHEN attempts > 0 THEN format('Delivered %%s times and never acknowledged.', attempts)
                 ELSE 'The agent did not come to fetch it in time.' END
WHERE state IN ('pending', 'delivered')
  AND (expires_at <= clock_timestamp()
       OR (attempts >= %(most)s AND next_attempt_at <= clock_timestamp()))
RETURNING id, agent_id, kind"""

_EXPECTED = """
SELECT DISTINCT agent_id, attempts >= %(most)s OR expires_at <= clock_timestamp() AS dead
FROM sched_agent_command
WHERE state IN ('pending', 'delivered')
  AND (next_attempt_at <= clock_timestamp() OR expires_at <= clock_timestamp())"""

_COLUMNS = """c.id, c.agent_id, a.name AS agent, c.kind, c.payload, c.state, c.attempts, c.created_by,
       c.created_at, c.next_attempt_at, c.expires_at, c.delivered_at, c.ended_at, c.result, c.error,
       c.resent_as"""

_GET = f"""
SELECT {_COLUMNS} FROM sched_agent_command c JOIN sched_agent a ON a.id = c.agent_id WHERE c.id = %(id)s"""

_WHERE = """
FROM sched_agent_command c JOIN sched_agent a ON a.id = c.agent_id
WHERE (%(agent_id)s::uuid IS NULL OR c.agent_id = %(agent_id)s)
  AND (%(state)s::text IS NULL OR c.state = %(state)s)
  AND (%(before)s::uuid IS NULL OR c.id < %(before)s)
  AND (%(namespaces)s::text[] IS NULL OR a.capabilities->'namespaces' ?| %(namespaces)s)"""

_LIST = f"SELECT {_COLUMNS} {_WHERE} ORDER BY c.id DESC LIMIT %(limit)s"
_COUNT = f"SELECT count(*) FROM (SELECT 1 {_WHERE} LIMIT %(cap)s) counted"

_RESENT = """
UPDATE sched_agent_command SET resent_as = %(new)s
WHERE id = %(id)s AND state = 'dead' AND resent_as IS NULL RETURNING id"""


@dataclass(frozen=True, slots=True)
class CommandFilter:
    agent_id: UUID | None = None
    state: str | None = None
    before: UUID | None = None
    # Of agents that serve one of these; None: all.
    namespaces: Sequence[str] | None = None

    def parameters(self) -> dict[str, Any]:
        return {
            "agent_id": self.agent_id,
            "state": self.state,
            "before": self.before,
            "namespaces": self.namespaces,
        }


@dataclass(frozen=True, slots=True)
class DueCommand:
    id: UUID
    kind: CommandKind
    payload: dict[str, Any]


async def issue(
    connection: Connection,
    *,
    id_: UUID,
    agent_id: UUID,
    kind: CommandKind,
    payload: dict[str, Any],
    created_by: str | None,
) -> None:
    """Write a command down; one that says whether to take work puts an end to earlier ones that do."""
    if kind in MODE_COMMANDS:
        kinds = sorted(one.value for one in MODE_COMMANDS)
        await connection.execute(_SUPERSEDE, {"agent_id": agent_id, "kinds": kinds})
    await connection.execute(
        _ISSUE,
        {
            "id": id_,
            "agent_id": agent_id,
            "kind": kind.value,
            "payload": msgspec.json.encode(payload).decode(),
            "created_by": created_by,
            "lifetime": LIFETIMES[kind],
        },
    )


async def end_outlived(connection: Connection, name: str, session_id: UUID) -> None:
    """End what an earlier session of this agent was told, before this one takes its place."""
    await connection.execute(_OUTLIVED, {"name": name, "session_id": session_id})


async def deliver(connection: Connection, agent_id: UUID) -> list[DueCommand]:
    """Return what an agent is to be told now, and note that it was told."""
    rows = await connection.execute(
        _DELIVER,
        {"agent_id": agent_id, "most": MOST_ATTEMPTS, "first": FIRST_PAUSE, "longest": LONGEST_PAUSE},
    )
    found = [DueCommand(row.id, CommandKind(row.kind), row.payload) for row in rows]
    return sorted(found, key=lambda command: command.id)


async def acknowledge(
    connection: Connection, agent_id: UUID, answers: Sequence[tuple[UUID, str, str | None]]
) -> None:
    """Note what became of commands: (command, result as JSON, error). A late answer counts, a second not."""
    await connection.execute(
        _ACKNOWLEDGE,
        {
            "agent_id": agent_id,
            "ids": [id_ for id_, _, _ in answers],
            "results": [result for _, result, _ in answers],
            "errors": [error for _, _, error in answers],
        },
    )


async def give_up(connection: Connection) -> list[tuple[UUID, UUID, str]]:
    """End what was not acknowledged in time; return (command, agent, kind) of each."""
    rows = await connection.execute(_GIVE_UP, {"most": MOST_ATTEMPTS})
    return [(row.id, row.agent_id, row.kind) for row in rows]


async def expected(connection: Connection) -> tuple[set[UUID], bool]:
    """Return the agents that are to be told something now, and whether there is something to give up."""
    rows = await connection.execute(_EXPECTED, {"most": MOST_ATTEMPTS})
    return {row.agent_id for row in rows if not row.dead}, any(row.dead for row in rows)


async def get(connection: Connection, id_: UUID) -> AgentCommand | None:
    row = (await connection.execute(_GET, {"id": id_})).one_or_none()
    return None if row is None else AgentCommand(**row.as_dict())


async def list_commands(connection: Connection, wanted: CommandFilter, limit: int) -> list[AgentCommand]:
    """Return commands, newest first."""
    rows = await connection.execute(_LIST, {**wanted.parameters(), "limit": limit})
    return [AgentCommand(**row.as_dict()) for row in rows]


async def count_commands(connection: Connection, wanted: CommandFilter, cap: int) -> int:
    row = await connection.execute(_COUNT, {**wanted.parameters(), "cap": cap})
    return int(row.scalar_one())


async def note_resent(connection: Connection, id_: UUID, new: UUID) -> bool:
    """Note that a dead command was sent again; False if it is not dead or was sent again before."""
    row = await connection.execute(_RESENT, {"id": id_, "new": new})
    return row.scalar_one_or_none() is not None
