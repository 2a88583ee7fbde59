"""Results that came too late to count: kept as they came, and shown beside what counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final
from uuid import UUID

from hetuflow_core.resources import LateResult
from hetuflow_server.store.connection import Connection

# An agent that tells the same again and again is not heard any better for it.
_MOST: Final = 20

_KEEP = """
INSERT INTO sched_late_report (id, namespace_id, instance_id, task_id, agent_id, token, report)
SELECT r.id, coalesce(i.namespace_id, 0), r.instance_id, i.task_id, %(agent_id)s, r.token, r.report::jsonb
FROM unnest(%(ids)s::uuid[], %(instances)s::uuid[], %(tokens)s::uuid[], %(reports)s::text[])
       AS r(id, instance_id, token, report)
LEFT JOIN sched_task_instance_all i ON i.id = r.instance_id"""

_OF_INSTANCES = """
SELECT r.instance_id, a.name AS agent, r.reported_at, r.report->>'status' AS status,
       (r.report->>'exit_code')::integer AS exit_code, (r.report->>'signal')::integer AS signal,
       r.report->>'reason' AS reason, r.report->>'message' AS message, r.report->'output' AS output
FROM sched_late_report r LEFT JOIN sched_agent a ON a.id = r.agent_id
WHERE r.instance_id = ANY(%(instances)s::uuid[])
ORDER BY r.reported_at, r.id LIMIT %(most)s"""


async def keep(
    connection: Connection,
    agent_id: UUID,
    reports: Sequence[tuple[UUID, UUID, UUID, str]],
) -> None:
    """Keep what came too late to count: (new id, instance, token, the report as JSON)."""
    if reports:
        ids, instances, tokens, texts = zip(*reports, strict=True)
        await connection.exec_driver_sql(
            _KEEP,
            {
                "ids": list(ids),
                "instances": list(instances),
                "tokens": list(tokens),
                "reports": list(texts),
                "agent_id": agent_id,
            },
        )


async def of_instances(connection: Connection, instances: Sequence[UUID]) -> list[LateResult]:
    """Return what was said too late of these, the first first."""
    rows = await connection.exec_driver_sql(_OF_INSTANCES, {"instances": list(instances), "most": _MOST})
    return [LateResult(**row._mapping) for row in rows]  # noqa: SLF001 - a row's public name
