"""Results that came too late to count: kept as they came, once, and shown beside what counts."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple
from uuid import UUID

from hetuflow_core.resources.tasks import LateResult
from hetuflow_server.postgres.connection import Connection

# Whoever tells ever more of the same attempt is not heard any better for it.
_MOST: Final = 20

# An answer that was lost has its report told again, maybe to another server at the same time: in the order of
# their ids, so that no two of these wait for each other.
_KEEP = """
INSERT INTO sched_late_report (id, namespace_id, instance_id, task_id, agent_id, token, report)
SELECT r.id, coalesce(i.namespace_id, 0), r.instance_id, i.task_id, r.agent_id, r.token, r.report::jsonb
FROM unnest(%(ids)s::uuid[], %(agents)s::uuid[], %(instances)s::uuid[], %(tokens)s::uuid[],
            %(reports)s::text[]) AS r(id, agent_id, instance_id, token, report)
LEFT JOIN sched_task_instance_all i ON i.id = r.instance_id
ORDER BY r.id
ON CONFLICT (id) DO NOTHING"""

_OF_INSTANCES = """
SELECT r.instance_id, a.name AS agent, r.reported_at, r.report->>'status' AS status,
       (r.report->>'exit_code')::integer AS exit_code, (r.report->>'signal')::integer AS signal,
       r.report->>'reason' AS reason, r.report->>'message' AS message, r.report->'output' AS output
FROM sched_late_report r LEFT JOIN sched_agent a ON a.id = r.agent_id
WHERE r.instance_id = ANY(%(instances)s::uuid[])
ORDER BY r.reported_at, r.id LIMIT %(most)s"""


class LateReport(NamedTuple):
    # By what it says: `ids.late_report`.
    id: UUID
    agent_id: UUID
    instance_id: UUID
    token: UUID
    # JSON
    report: str


async def keep(connection: Connection, reports: Sequence[LateReport]) -> None:
    """Keep what came too late to count; what was told before is there already."""
    ids, agents, instances, tokens, texts = (list(column) for column in zip(*reports, strict=True))
    await connection.execute(
        _KEEP, {"ids": ids, "agents": agents, "instances": instances, "tokens": tokens, "reports": texts}
    )


async def of_instances(connection: Connection, instances: Sequence[UUID]) -> list[LateResult]:
    """Return what was said too late of these, the first first."""
    rows = await connection.execute(_OF_INSTANCES, {"instances": list(instances), "most": _MOST})
    return [LateResult(**row.as_dict()) for row in rows]
