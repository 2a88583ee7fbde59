"""The claim reads the live queue alone, and no more of it whatever the history, partitions or backlog."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg

from hetuflow_core.runtime.clock import ManualClock
from hetuflow_server.cluster.hints import BacklogEntry
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.queue import claim_transitions, transitions
from hetuflow_server.queue.rows import Recipient
from hetuflow_server.upkeep.loop import Upkeep
from tests.support.postgres.rows import insert, instance_row

HEADS = {"namespaces": [1], "placements": [1], "priorities": [500], "quotas": [50], "without": []}
HEADS["targets"] = [None]

_BACKLOG = """
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, seq, attempt,
                                 status, priority, fire_at, due_at, lease_ms)
SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, gen_random_uuid(), 1, 1, 1, 'pending', 500, d, d, 300000
FROM (SELECT now() - %s * interval '1 hour' + n * interval '1 ms' AS d FROM generate_series(1, %s) n) due"""

_HISTORY = """
INSERT INTO sched_task_instance_history (id, task_id, namespace_id, placement_id, job_id, job_version, seq,
                                         attempt, status, priority, fire_at, due_at, finished_at)
SELECT gen_random_uuid(), gen_random_uuid(), 1, 1, gen_random_uuid(), 1, 1, 1, 'succeeded', 500, now(), now(),
       now() FROM generate_series(1, %s)"""


def explain(url: str, *, generic: bool) -> dict[str, Any]:
    parameters = {**HEADS, "want": 50, "prefetch": timedelta(seconds=2)}
    with psycopg.connect(url) as connection:
        connection.execute(f"SET plan_cache_mode = {'force_generic_plan' if generic else 'auto'}")
        row = connection.execute(
            f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {claim_transitions._LOCK_CLAIMABLE}",
            parameters,
            prepare=True,
        ).fetchone()
    assert row is not None
    plan: dict[str, Any] = row[0][0]
    return plan


def nodes(plan: dict[str, Any]) -> list[dict[str, Any]]:
    return [plan, *(node for child in plan.get("Plans", []) for node in nodes(child))]


def blocks_read(plan: dict[str, Any]) -> int:
    blocks: int = plan["Plan"]["Shared Hit Blocks"] + plan["Plan"]["Shared Read Blocks"]
    return blocks


async def test_what_a_claim_reads_stays_flat(database: Database, fresh_database_url: str) -> None:
    """However its plan is made; one queue serves for both ways, as it takes long to fill."""
    ways = (False, True)
    with psycopg.connect(fresh_database_url, autocommit=True) as connection:
        connection.execute(_BACKLOG, [3, 2_000])
        connection.execute("ANALYZE sched_task_instance")
    few = [explain(fresh_database_url, generic=generic) for generic in ways]
    with psycopg.connect(fresh_database_url, autocommit=True) as connection:
        connection.execute(_HISTORY, [20_000])
        connection.execute(_BACKLOG, [1, 20_000])
        connection.execute("ANALYZE")
    clock = ManualClock(datetime.now(UTC))
    upkeep = Upkeep(
        database,
        clock,
        keep_tasks=timedelta(days=400),
        keep_logs=timedelta(days=400),
        keep_artifacts=timedelta(days=400),
        keep_events=timedelta(days=400),
        keep_audit=timedelta(days=400),
        keep_usage=timedelta(days=400),
        ahead=timedelta(days=45),
    )
    await upkeep.run_once()
    many = [explain(fresh_database_url, generic=generic) for generic in ways]
    for plan in (*few, *many):
        scans = {
            n["Node Type"] for n in nodes(plan["Plan"]) if n.get("Relation Name") == "sched_task_instance"
        }
        assert "Seq Scan" not in scans
        by_id = {n["Index Name"] for n in nodes(plan["Plan"]) if n["Node Type"] == "Bitmap Index Scan"}
        assert by_id <= {"sched_task_instance_pkey"}
        assert {n.get("Relation Name") for n in nodes(plan["Plan"])} <= {None, "sched_task_instance"}
    # Eleven times the backlog makes the index one level deeper: one page more per candidate at most.
    candidates = 50
    for of_few, of_many in zip(few, many, strict=True):
        assert blocks_read(of_many) <= blocks_read(of_few) + 2 * candidates


async def test_a_claim_locks_exactly_what_it_returns(database: Database, fresh_database_url: str) -> None:
    with psycopg.connect(fresh_database_url, autocommit=True) as connection:
        connection.execute(_BACKLOG, [1, 500])
    async with database.transaction() as claiming:
        locked = await claiming.execute(
            claim_transitions._LOCK_CLAIMABLE, {**HEADS, "want": 40, "prefetch": timedelta(seconds=2)}
        )
        assert len(locked.all()) == 40
        with psycopg.connect(fresh_database_url) as other:
            free = other.execute("SELECT id FROM sched_task_instance FOR UPDATE SKIP LOCKED").fetchall()
        assert len(free) == 460


async def test_claims_at_the_same_time_do_not_wait_for_each_other(
    database: Database, fresh_database_url: str
) -> None:
    with psycopg.connect(fresh_database_url, autocommit=True) as connection:
        connection.execute(_BACKLOG, [1, 3])

    async def lock(connection: Connection) -> set[UUID]:
        found = await claim_transitions.lock_claimable(
            connection, [(BacklogEntry(1, 1, 500), 3)], want=2, prefetch=timedelta(0)
        )
        return {row.id for row in found}

    async with database.transaction() as one, database.transaction() as other:
        await other.execute("SET LOCAL lock_timeout = '1s'")
        first, second = await lock(one), await lock(other)
    assert (len(first), len(second), len(first | second)) == (2, 1, 3)


async def test_due_comes_before_future_due_then_priority_due_time_and_id(
    database: Database, fresh_database_url: str
) -> None:
    now, second = datetime.now(UTC), timedelta(seconds=1)
    wanted = [
        instance_row(at=now - 1 * second, priority=900),
        instance_row(at=now - 9 * second, priority=500),
        # Made before the one it follows: the id decides between equals alone.
        instance_row(at=now - 20 * second, due_at=now - 5 * second, priority=500),
        instance_row(at=now + 60 * second, priority=1000),
    ]
    with psycopg.connect(fresh_database_url) as connection:
        for row in reversed(wanted):
            insert(connection, "sched_task_instance", {**row, "lease_ms": 300_000})
        insert(
            connection,
            "sched_task_instance",
            instance_row(at=now + 999 * second, priority=1000, lease_ms=4000),
        )
        insert(
            connection,
            "sched_task_instance",
            instance_row(target_agent_id=uuid4(), priority=900, lease_ms=4000),
        )
    async with database.transaction() as connection_:
        locked = await claim_transitions.lock_claimable(
            connection_,
            [(BacklogEntry(1, 1, priority), 10) for priority in (500, 900, 1000)],
            want=10,
            prefetch=timedelta(seconds=90),
        )
        more = await claim_transitions.lock_claimable(
            connection_,
            [(BacklogEntry(1, 1, priority), 10) for priority in (500, 900, 1000)],
            want=10,
            prefetch=timedelta(seconds=90),
            without=[row.id for row in locked],
        )
        recipients = [Recipient(uuid4(), uuid4(), uuid4()) for _ in locked]
        reserved = await claim_transitions.reserve(connection_, list(zip(locked, recipients, strict=True)))
        mine, strange = recipients[0], uuid4()
        before = await claim_transitions.claimed_before(connection_, [(mine.agent_id, mine.request_id)])
        assert await claim_transitions.claimed_before(connection_, [(strange, mine.request_id)]) == {}
    assert [row.id for row in locked] == [row["id"] for row in wanted]
    assert more == []
    claimed = [one for one in reserved if one is not None]
    assert [one.id for one in before[mine.request_id]] == [locked[0].id]
    assert len({one.token for one in claimed}) == len(wanted), "each claim has a token of its own"
    assert {one.claim_no for one in claimed} == {1}
    # A reservation lasts from when its work is due.
    assert claimed[-1].reserved_until == claimed[-1].due_at + timedelta(seconds=10)
    assert all(one.reserved_until > now + timedelta(seconds=9) for one in claimed)
    with psycopg.connect(fresh_database_url) as connection:
        owners = connection.execute(
            "SELECT id, token, agent_id, session_id, request_id FROM sched_task_instance "
            "WHERE status = 'reserved'"
        ).fetchall()
    assert {(row[0], row[1]): Recipient(*row[2:]) for row in owners} == {
        (claimed.id, claimed.token): recipient
        for claimed, recipient in zip(reserved, recipients, strict=True)
        if claimed is not None
    }
    assert len({claimed.token for claimed in reserved if claimed is not None}) == len(wanted)


async def test_a_head_gives_no_more_than_its_share_and_its_first(
    database: Database, fresh_database_url: str
) -> None:
    """Whatever plan PostgreSQL has for it."""
    now, second = datetime.now(UTC), timedelta(seconds=1)
    rows = {
        priority: [instance_row(at=now - n * second, priority=priority, lease_ms=4000) for n in range(1, 6)]
        for priority in (500, 900)
    }
    with psycopg.connect(fresh_database_url) as connection:
        for row in (*rows[500], *rows[900]):
            insert(connection, "sched_task_instance", row)
    async with database.transaction() as claiming:
        for way in ("indexscan", "indexonlyscan", "bitmapscan"):
            await claiming.execute(f"SET LOCAL enable_{way} = off")
        locked = await claim_transitions.lock_claimable(
            claiming,
            [(BacklogEntry(1, 1, 500), 2), (BacklogEntry(1, 1, 900), 3)],
            want=10,
            prefetch=timedelta(0),
        )
    assert [one.id for one in locked] == [
        *(row["id"] for row in rows[900][:1:-1]),
        *(row["id"] for row in rows[500][:2:-1]),
    ]


async def test_what_is_bound_goes_first_and_counts(database: Database, fresh_database_url: str) -> None:
    """Nobody else can take it; with the rest it is no more than was asked for."""
    agent = uuid4()
    with psycopg.connect(fresh_database_url) as connection:
        for target in (agent, agent, None, None, None):
            insert(connection, "sched_task_instance", instance_row(target_agent_id=target, lease_ms=4000))
    async with database.transaction() as claiming:
        locked = await claim_transitions.lock_claimable(
            claiming,
            [(BacklogEntry(1, 1, 500), 3), (BacklogEntry(1, 1, 500, agent), 3)],
            want=3,
            prefetch=timedelta(0),
        )
    assert [one.target_agent_id for one in locked] == [agent, agent, None]


async def test_what_is_somebodys_is_nobody_elses(database: Database, fresh_database_url: str) -> None:
    with psycopg.connect(fresh_database_url) as connection:
        insert(connection, "sched_task_instance", instance_row(lease_ms=300_000))
    first, second = (Recipient(uuid4(), uuid4(), uuid4()) for _ in range(2))
    async with database.transaction() as claiming:
        [row] = await claim_transitions.lock_claimable(
            claiming, [(BacklogEntry(1, 1, 500), 1)], want=1, prefetch=timedelta(0)
        )
        [mine] = await claim_transitions.reserve(claiming, [(row, first)])
        assert mine is not None
        assert await claim_transitions.reserve(claiming, [(row, second)]) == [None]
        request = [(first.agent_id, first.request_id)]
        assert (await claim_transitions.claimed_before(claiming, request)).keys() == {first.request_id}
        assert await transitions.start(claiming, [(mine.id, mine.token)]) == {mine.id}
        assert await claim_transitions.claimed_before(claiming, request) == {}, "what has begun is not given"
