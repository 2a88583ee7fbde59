"""What looks at the queue reads what it is about, however much waits, is held back or is claimed besides."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest

from hetuflow_server.cluster.hints import BacklogEntry
from hetuflow_server.queue import claim_transitions, live_transitions, store as queue_store, transitions
from tests.support.postgres.explained_connection import Explaining

FREE, BOUND_TO, SOON = BacklogEntry(1, 1, 500), UUID(int=7), timedelta(seconds=2)
# Of the class that is claimed: due, due tomorrow, held back; of another class, of another namespace; bound to
# an agent, which is overdue, and to others; claimed by fifty agents, one of which has twenty of them to end.
_BACKLOG = """
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, seq, attempt,
                                 status, held_reason, priority, fire_at, due_at, lease_ms, target_agent_id,
                                 agent_id, session_id, token, request_id, reserved_at, reserved_until,
                                 started_at, lease_until, cancel_requested, deadline_at)
SELECT gen_random_uuid(), gen_random_uuid(), namespace, class, gen_random_uuid(), 1, 1, 1,
       status, CASE status WHEN 'held' THEN 'paused' END, 500, now(), now() + due * interval '1 s', 300000,
       target, agent, agent, CASE WHEN agent IS NOT NULL THEN gen_random_uuid() END,
       CASE status WHEN 'reserved' THEN agent END,
       CASE WHEN agent IS NOT NULL THEN now() END,
       CASE status WHEN 'reserved' THEN now() + interval '1 h' END,
       CASE status WHEN 'running' THEN now() END,
       CASE status WHEN 'running' THEN now() + interval '1 h' END,
       coalesce(agent = %(ending)s, false),
       now() + CASE target WHEN %(target)s THEN -1 ELSE 1 END * interval '1 h'
FROM (
  SELECT 1 AS namespace, 1 AS class, 'pending' AS status, -n AS due, NULL::uuid AS target, NULL::uuid AS agent
  FROM generate_series(1, 3000) n
  UNION ALL SELECT 1, 1, 'pending', 86400 + n, NULL, NULL FROM generate_series(1, 3000) n
  UNION ALL SELECT 1, 1, 'held', -n, NULL, NULL FROM generate_series(1, 3000) n
  UNION ALL SELECT 1, 2, 'pending', -n, NULL, NULL FROM generate_series(1, 3000) n
  UNION ALL SELECT 2, 1, 'pending', -n, NULL, NULL FROM generate_series(1, 3000) n
  UNION ALL SELECT 1, 1, 'pending', -n, %(target)s, NULL FROM generate_series(1, 50) n
  UNION ALL SELECT 1, 1, 'pending', -n, gen_random_uuid(), NULL FROM generate_series(1, 200) n
  UNION ALL SELECT 1, 1, CASE n %% 2 WHEN 0 THEN 'running' ELSE 'reserved' END, -n, NULL,
                   md5((n %% 50)::text)::uuid FROM generate_series(1, 1000) n) of_all"""

Ask = Callable[[Explaining], Awaitable[Any]]


def questions(agent: UUID) -> dict[str, tuple[Ask, int]]:
    """What is asked, and how many rows it may read for that."""

    def lock(on: Explaining, head: BacklogEntry) -> Awaitable[Any]:
        return claim_transitions.lock_claimable(on, [(head, 10)], want=10, prefetch=SOON)

    bound = FREE._replace(target=BOUND_TO)
    held = [(uuid4(), uuid4())]
    return {
        # Twice: as candidates, and as what is locked of them.
        "a claim": (lambda on: lock(on, FREE), 20),
        "a claim of what is bound": (lambda on: lock(on, bound), 20),
        "what a request was given before": (
            lambda on: claim_transitions.claimed_before(on, [(agent, agent)]),
            40,
        ),
        "the heads": (queue_store.backlog, 2 * 210),
        "the next due": (lambda on: queue_store.next_due(on, [FREE, bound]), 2),
        "what an agent is to end": (lambda on: queue_store.cancels_for(on, [agent]), 40),
        "who has something to end": (queue_store.cancelled_claims, 40),
        "what an agent has": (lambda on: live_transitions.on_agent(on, agent), 40),
        "an adoption": (lambda on: queue_store.adopt(on, agent, agent, held), 40),
        "a look for what has run out": (lambda on: queue_store.look_for_rescue(on, [1]), 1_010),
        "what is overdue": (lambda on: queue_store.overdue(on, 1, 100), 50),
        "what has run out": (lambda on: queue_store.expired(on, 1, 10), 1_010),
        "a release of what ran out": (lambda on: transitions.release_expired(on, 1, 10), 1_010),
        "a release of a former life": (
            lambda on: transitions.release_former_sessions(on, agent, uuid4()),
            80,
        ),
    }


@pytest.mark.parametrize("mode", ["auto", "force_generic_plan"])
async def test_what_looks_at_the_queue_reads_what_it_is_about(fresh_database_url: str, mode: str) -> None:
    with psycopg.connect(fresh_database_url, autocommit=True, prepare_threshold=None) as driver:
        row = driver.execute("SELECT md5('7')::uuid").fetchone()
        assert row is not None
        agent: UUID = row[0]
        with psycopg.ClientCursor(driver) as cursor:
            cursor.execute("UPDATE sched_namespace SET rescued_at = now()")
            cursor.execute(_BACKLOG, {"target": BOUND_TO, "ending": agent})
        driver.execute("ANALYZE sched_task_instance")
        driver.execute(f"SET plan_cache_mode = {mode}")
        for what, (ask, most) in questions(agent).items():
            with driver.transaction(force_rollback=True):
                explaining = Explaining(driver, "sched_task_instance", strict=False)
                await ask(explaining)
            assert explaining.read <= most, (what, explaining.read)
