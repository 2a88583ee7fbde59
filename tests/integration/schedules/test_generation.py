"""Generation: each fire once, by the misfire policy, whatever crashes, races or leads."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import pytest

from hetuflow_core import ids
from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_core.limits import key_scope
from hetuflow_server.cluster.leadership import Leadership, NotLeading
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.connection import Connection, Rows
from hetuflow_server.schedules import generator as generator_module, store
from hetuflow_server.schedules.fire_planner import DueFires, FirePlan, FirePlanner
from hetuflow_server.schedules.generator import Create, Generator
from hetuflow_server.schedules.stored_specs import StoredSpecs
from hetuflow_server.schedules.transitions import AlreadyThere
from tests.support.flows import Flows, work
from tests.support.queue.engine import LEADER, WHO, Engine, leading

SECONDLY = {"name": "secondly", "every": "1s"}
MINUTE, SECOND = timedelta(minutes=1), timedelta(seconds=1)


@pytest.fixture
async def leadership(scheduling: Engine) -> AsyncIterator[Leadership]:
    async with leading(scheduling.url) as leadership:
        yield leadership


@pytest.fixture
def generator(scheduling: Engine, leadership: Leadership) -> Generator:
    return Generator(scheduling.database, leadership, scheduling.versions, scheduling.hints)


async def everything(generator: Generator) -> int:
    """Generate until nothing is left to do; how many rounds it took."""
    rounds = 0
    while await generator.run_once():
        rounds += 1
    return rounds


def row_of(engine: Engine, name: str) -> dict[str, Any]:
    return engine.one("SELECT * FROM sched_schedule WHERE name = %s AND deleted_at IS NULL", name)


def fires(engine: Engine) -> list[datetime]:
    return [row["fire_at"] for row in engine.all("SELECT fire_at FROM sched_task ORDER BY fire_at")]


def set_back(engine: Engine, by: timedelta) -> datetime:
    """As if nobody had generated for so long; return where the cursor is."""
    row = engine.one(
        "UPDATE sched_schedule SET cursor = date_trunc('second', now()) - %(by)s, "
        "next_fire_at = date_trunc('second', now()) - %(by)s + interval '1 s' RETURNING cursor".replace(
            "%(by)s", "make_interval(secs => %s)"
        ),
        by.total_seconds(),
        by.total_seconds(),
    )
    cursor: datetime = row["cursor"]
    return cursor


async def test_a_minute_is_generated_ahead_and_each_fire_once(
    scheduling: Engine, generator: Generator
) -> None:
    job_id = await scheduling.apply(
        {**SECONDLY, "params": {"who": "schedule"}, "jitter": "10s"},
        params={"who": "job", "more": 1},
        priority=700,
        deadline="1h",
        lease="90s",
    )
    assert await everything(generator) >= 1
    made = fires(scheduling)
    now = scheduling.now()
    row = row_of(scheduling, "secondly")
    assert len(made) == len(set(made)) == row["fired_count"]
    assert 58 <= len(made) <= 62
    assert now + 55 * SECOND < made[-1] <= row["cursor"] < row["next_fire_at"]
    for task in scheduling.all("SELECT * FROM sched_task"):
        assert task["id"] == ids.task_of_schedule(row["id"], task["fire_at"])
        assert task["params"] == {"who": "schedule", "more": 1}
        assert (task["job_id"], task["priority"], task["schedule_id"]) == (job_id, 700, row["id"])
        assert task["fire_at"] <= task["due_at"] < task["fire_at"] + 10 * SECOND
        assert task["deadline_at"] == task["due_at"] + timedelta(hours=1)
    assert len({task - task.replace(microsecond=0) for task in scheduling.fires("due_at")}) > 1
    assert set(scheduling.fires("lease_ms", "status")) == {(90_000, "pending")}
    assert {deadline - due for deadline, due in scheduling.fires("deadline_at", "due_at")} == {
        timedelta(hours=1)
    }
    assert len(scheduling.fires("id")) == len(made)


async def test_fires_of_a_flow_are_held_for_its_runs(scheduling: Engine, generator: Generator) -> None:
    flows = Flows(scheduling)
    await flows.apply(work("a"), schedules=[SECONDLY])
    assert await everything(generator) >= 1
    assert set(scheduling.fires("lease_ms", "status", "held_reason")) == {(None, "held", "flow")}
    soonest = scheduling.one("SELECT task_id FROM sched_task_instance ORDER BY due_at LIMIT 1")["task_id"]
    scheduling.rows.execute("UPDATE sched_task_instance SET due_at = now() WHERE task_id = %s", [soonest])
    await flows.follow_ups.go_on(soonest)
    assert flows.nodes(soonest) == {"a": "running"}
    # One that does not allow overlap waits for its turn first.
    await flows.apply(work("a"), schedules=[{**SECONDLY, "overlap": "skip"}])
    await everything(generator)
    assert (None, "held", "overlap") in scheduling.fires("lease_ms", "status", "held_reason")


async def test_what_is_not_due_is_not_touched(scheduling: Engine, generator: Generator) -> None:
    await scheduling.apply(
        {"name": "yearly", "cron": "0 0 1 1 *"},
        {"name": "once", "at": "2100-01-01T00:00:00Z"},
        {"name": "ended", "every": "1s", "end_at": "2020-01-01T00:00:00Z"},
    )
    before = scheduling.all("SELECT * FROM sched_schedule ORDER BY name")
    assert await everything(generator) == 0
    assert scheduling.all("SELECT * FROM sched_schedule ORDER BY name") == before
    assert [row["next_fire_at"] is None for row in before] == [True, False, False]


@pytest.mark.parametrize(
    ("misfire", "late"),
    [("skip", 0), ("latest", 1), ("all(100)", 100), ("all(2500)", 2500)],
)
async def test_six_hours_without_a_leader(
    scheduling: Engine, generator: Generator, misfire: str, late: int
) -> None:
    await scheduling.apply({**SECONDLY, "misfire": misfire})
    set_back(scheduling, timedelta(hours=6))
    before = scheduling.now()
    rounds = await everything(generator)
    made, after = fires(scheduling), scheduling.now()
    assert rounds >= (2 if late > generator_module.MOST_FIRES else 1)
    # What is exactly how late depends on when it ran, which was between `before` and `after`.
    surely_late = [fire for fire in made if fire < before - MINUTE]
    on_time = [fire for fire in made if fire >= after - MINUTE]
    slack = int((after - before).total_seconds()) + 1
    assert late <= len(surely_late) + slack
    assert len(surely_late) <= late + slack
    assert 119 - slack <= len(on_time) <= 121
    assert made == [made[0] + n * SECOND for n in range(len(made))], "the latest ones, without a gap"
    assert row_of(scheduling, "secondly")["fired_count"] == len(made)
    assert row_of(scheduling, "secondly")["decided_until"] is None


async def test_count_and_end_are_kept(scheduling: Engine, generator: Generator) -> None:
    await scheduling.apply({**SECONDLY, "max_count": 7, "misfire": "all(5)"})
    set_back(scheduling, timedelta(hours=6))
    await everything(generator)
    row = row_of(scheduling, "secondly")
    assert (len(fires(scheduling)), row["fired_count"], row["next_fire_at"]) == (7, 7, None)
    end = (scheduling.now() + 20 * SECOND).replace(microsecond=0)
    await scheduling.apply({"name": "ending", "every": "1s", "end_at": end.isoformat()}, name="other")
    await everything(generator)
    assert max(fires(scheduling)) == end
    assert row_of(scheduling, "ending")["next_fire_at"] is None


async def test_schedules_that_say_the_same_count_and_go_on_each_for_itself(
    scheduling: Engine, generator: Generator
) -> None:
    """They share their plans, as far as they have come equally far."""
    same = [{**SECONDLY, "name": name, "max_count": 5} for name in ("fresh", "counted", "further")]
    await scheduling.apply(*same)
    # As of one instant, so that only what is changed below tells them apart.
    set_back(scheduling, timedelta(0))
    scheduling.one("UPDATE sched_schedule SET fired_count = 3 WHERE name = 'counted' RETURNING id")
    further = scheduling.one(
        "UPDATE sched_schedule SET cursor = cursor + interval '10 s', next_fire_at = next_fire_at + "
        "interval '10 s' WHERE name = 'further' RETURNING cursor"
    )["cursor"]
    assert await generator.run_once() == 3
    made = scheduling.all(
        "SELECT s.name, t.fire_at FROM sched_task t JOIN sched_schedule s ON s.id = t.schedule_id"
    )
    of = {
        name: [row["fire_at"] for row in made if row["name"] == name]
        for name in ("fresh", "counted", "further")
    }
    assert {name: len(times) for name, times in of.items()} == {"fresh": 5, "counted": 2, "further": 5}
    assert min(of["further"]) == further + SECOND
    assert min(of["fresh"]) == min(of["counted"]) < further


async def test_what_one_look_does_not_hold_is_found_by_the_next(
    scheduling: Engine, generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Looks go on from each other; after so many of them the soonest ones are looked for again."""
    monkeypatch.setattr(generator_module, "_MOST_DUE", 3)
    at = (scheduling.now() + 20 * SECOND).replace(microsecond=0).isoformat()
    await scheduling.apply(*({"name": f"s{n}", "every": "1d", "start_at": at} for n in range(20)))
    assert [await generator.run_once() for _ in range(3)] == [12, 8, 0]
    assert len({row["schedule_id"] for row in scheduling.all("SELECT schedule_id FROM sched_task")}) == 20


async def test_fires_that_may_not_overlap_are_held(scheduling: Engine, generator: Generator) -> None:
    await scheduling.apply({**SECONDLY, "overlap": "skip"})
    await everything(generator)
    assert set(scheduling.fires("status", "held_reason")) == {("held", "overlap")}


async def test_fires_count_under_the_concurrency_key_of_their_job(
    scheduling: Engine, generator: Generator
) -> None:
    job_id = await scheduling.apply(
        {**SECONDLY, "params": {"who": "me"}},
        {"name": "other", "every": "1s"},
        params={"who": "somebody"},
        concurrency={"max": 1, "key": "{{ params.who }}"},
    )
    await everything(generator)
    schedules = {row["id"]: row["name"] for row in scheduling.all("SELECT id, name FROM sched_schedule")}
    keys = {
        (schedules[schedule], key) for schedule, key in scheduling.fires("schedule_id", "concurrency_key")
    }
    assert keys == {("secondly", key_scope(job_id, "me")), ("other", key_scope(job_id, "somebody"))}


async def test_a_crash_at_any_statement_changes_nothing(
    scheduling: Engine, generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The leader's session is ended after its k-th statement, for every k; then somebody goes on."""
    await scheduling.apply({**SECONDLY, "misfire": "all(30)"})
    execute, copy, left = Connection.execute, Connection.copy, [0]

    async def die_in_turn(connection: Connection) -> None:
        who = await execute(connection, "SELECT current_setting('application_name')")
        if who.scalar_one() == LEADER:
            left[0] -= 1
            if left[0] == 0:
                ended = scheduling.all(
                    "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
                    "WHERE application_name = %s AND state = 'idle in transaction'",
                    LEADER,
                )
                assert ended, "there is a session to end"

    async def dying(self: Connection, statement: str, parameters: Any = None, **options: Any) -> Rows:
        rows = await execute(self, statement, parameters, **options)
        await die_in_turn(self)
        return rows

    async def dying_copy(self: Connection, statement: str, rows: bytes) -> None:
        await copy(self, statement, rows)
        await die_in_turn(self)

    monkeypatch.setattr(Connection, "execute", dying)
    monkeypatch.setattr(Connection, "copy", dying_copy)
    set_back(scheduling, timedelta(hours=1))
    crashes = 0
    for statement in range(1, 10):
        left[0] = statement
        try:
            await generator.run_once()
        except DatabaseUnreachable:
            crashes += 1
            assert fires(scheduling) == []
            assert scheduling.fires("id") == []
            assert row_of(scheduling, "secondly")["fired_count"] == 0
            continue
        break
    assert crashes == 4, "the fence, the cursors, the tasks, their instances"
    monkeypatch.undo()
    await everything(generator)
    made = fires(scheduling)
    assert made == [made[0] + n * SECOND for n in range(len(made))]
    assert row_of(scheduling, "secondly")["fired_count"] == len(made) == len(scheduling.fires("id"))
    assert 148 <= len(made) <= 156


async def test_two_generators_at_once_make_each_fire_once(scheduling: Engine) -> None:
    """Both write without asking who leads: the cursor lets one through, and the ids would let no two in."""
    await scheduling.apply(*({"name": f"s{n}", "every": "1s"} for n in range(20)))

    async def turns() -> Any:
        async with scheduling.database.transaction() as connection:
            now = await database_time(connection)
            due = await store.due(connection, now + MINUTE, 100)
        specs = {row.spec: StoredSpecs().get(row.spec) for row in due}
        return await FirePlanner(DueFires(now, due, specs, {}, {})).next_batch()

    planned = [await turns(), await turns()]

    async def write(plan: Sequence[FirePlan], create: Create = generator_module.create) -> int:
        async with scheduling.database.transaction() as connection:
            return await create(connection, await generator_module.advance(connection, plan))

    created = await asyncio.gather(*(write(plan) for plan in planned))
    tasks = scheduling.all("SELECT schedule_id, fire_at FROM sched_task")
    assert sum(created) == len(tasks) == len({tuple(row.values()) for row in tasks})
    assert row_of(scheduling, "s0")["fired_count"] == len(tasks) / 20
    # Even with the cursors where they were.
    scheduling.rows.execute(
        "UPDATE sched_schedule s SET cursor = t.cursor "
        "FROM unnest(%s::uuid[], %s::timestamptz[]) AS t(id, cursor) WHERE s.id = t.id",
        [[turn.advance.id for turn in planned[0]], [turn.advance.cursor for turn in planned[0]]],
    )
    with pytest.raises(AlreadyThere):
        await write(planned[0])
    assert await write(planned[0], generator_module.create_missing) == 0
    assert row_of(scheduling, "s0")["fired_count"] == len(tasks) / 20, "nor are they counted twice"


async def test_a_fire_that_is_there_already_is_left_alone_and_the_others_are_made(
    scheduling: Engine, generator: Generator
) -> None:
    await scheduling.apply(SECONDLY)
    row = row_of(scheduling, "secondly")
    await everything(generator)
    made = scheduling.all("SELECT * FROM sched_task ORDER BY id")
    # As if an edit had set the cursor back and left a fire that somebody has reserved.
    kept = made[30]["id"]
    scheduling.rows.execute("DELETE FROM sched_task_instance WHERE task_id <> %s", [kept])
    scheduling.rows.execute("DELETE FROM sched_task WHERE id <> %s", [kept])
    scheduling.rows.execute(
        "UPDATE sched_schedule SET cursor = %s, next_fire_at = %s, fired_count = 1",
        [row["cursor"], row["next_fire_at"]],
    )
    await everything(generator)
    again = scheduling.all("SELECT * FROM sched_task ORDER BY id")
    assert [task["id"] for task in again][: len(made)] == [task["id"] for task in made]
    assert next(task for task in again if task["id"] == kept) == made[30]
    assert row_of(scheduling, "secondly")["fired_count"] == len(again) == len(scheduling.fires("id"))


@pytest.mark.parametrize("spec", [{}, {"concurrency": {"key": "k"}}], ids=["without a key", "under a key"])
async def test_a_fire_that_has_run_is_not_run_again_when_it_is_made_once_more(
    scheduling: Engine, generator: Generator, spec: dict[str, Any]
) -> None:
    """Its task is there and its instance no longer: nothing but the task says that this was all."""
    await scheduling.apply(SECONDLY, **spec)
    row = row_of(scheduling, "secondly")
    await everything(generator)
    instance, task = scheduling.fires("id", "task_id")[30]
    await scheduling.settle(scheduling.claim(instance))
    scheduling.rows.execute(
        "UPDATE sched_schedule SET cursor = %s, next_fire_at = %s", [row["cursor"], row["next_fire_at"]]
    )
    await everything(generator)
    assert task not in scheduling.fires("task_id")
    assert (await scheduling.task(task)).status == "succeeded"


@pytest.mark.parametrize(
    "rules",
    [
        {},
        {"jitter": "20s", "overlap": "queue_all", "priority": 7, "params": {"who": "schedule", "ü": "€"}},
    ],
)
async def test_both_ways_of_making_fires_make_the_same_rows(
    scheduling: Engine, generator: Generator, monkeypatch: pytest.MonkeyPatch, rules: dict[str, Any]
) -> None:
    await scheduling.apply(
        {**SECONDLY, **rules}, {"name": "other", "every": "7s"}, params={"who": "job"}, deadline="1h"
    )
    before = scheduling.all("SELECT * FROM sched_schedule")

    def rows() -> list[Any]:
        everything_but_when = "to_jsonb(t) - 'created_at' AS row FROM"
        return [
            scheduling.all(f"SELECT {everything_but_when} {table} t ORDER BY id")
            for table in ("sched_task", "sched_task_instance")
        ]

    await generator.run_once()
    copied = rows()
    for table in ("sched_task", "sched_task_instance"):
        scheduling.rows.execute(f"DELETE FROM {table}")
    for row in before:
        scheduling.rows.execute(
            "UPDATE sched_schedule SET cursor = %s, next_fire_at = %s, fired_count = 0 WHERE id = %s",
            [row["cursor"], row["next_fire_at"], row["id"]],
        )
    monkeypatch.setattr(generator_module, "create", generator_module.create_missing)
    await generator.run_once()
    # The second one has come further, as time has.
    for one, other in zip(copied, rows(), strict=True):
        assert len(one) >= 60
        assert [row for row in other if row in one] == one


async def test_who_no_longer_leads_generates_nothing(scheduling: Engine, generator: Generator) -> None:
    await scheduling.apply(SECONDLY)
    scheduling.rows.execute("UPDATE leader_fence SET holder = gen_random_uuid(), epoch = epoch + 1")
    with pytest.raises(NotLeading):
        await generator.run_once()
    assert fires(scheduling) == []
    assert await generator.run_once() == 0


async def test_an_edit_that_races_a_plan_wins_or_loses_as_a_whole(
    scheduling: Engine, generator: Generator, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between the plan and the write somebody edits: nothing of the plan is written."""
    await scheduling.apply(SECONDLY)
    next_batch, edited = FirePlanner.next_batch, []

    async def edited_meanwhile(self: FirePlanner) -> Any:
        planned = await next_batch(self)
        if not edited:
            edited.append(await scheduling.apply({**SECONDLY, "every": "7s"}))
        return planned

    monkeypatch.setattr(FirePlanner, "next_batch", edited_meanwhile)
    assert await generator.run_once() == 0
    assert fires(scheduling) == []
    monkeypatch.undo()
    await everything(generator)
    assert {fire.timestamp() % 7 for fire in fires(scheduling)} == {0}


async def test_edits_in_the_midst_of_generation_lose_and_double_nothing(
    scheduling: Engine, generator: Generator
) -> None:
    await scheduling.apply(SECONDLY)

    async def edit() -> None:
        schedule = await scheduling.schedule("secondly")
        for turn in range(15):
            await scheduling.schedules.change(WHO, schedule.id, {"priority": turn})
            await scheduling.schedules.enable(WHO, schedule.id, enabled=turn % 2 == 1)
        await scheduling.schedules.enable(WHO, schedule.id, enabled=True)

    async def generate(editing: asyncio.Task[None]) -> None:
        while not editing.done():
            await generator.run_once()
            await asyncio.sleep(0)

    editing = asyncio.create_task(edit())
    await asyncio.gather(editing, generate(editing))
    await everything(generator)
    row = row_of(scheduling, "secondly")
    coming = scheduling.all(
        "SELECT fire_at, priority FROM sched_task WHERE fire_at > %s ORDER BY fire_at", scheduling.now()
    )
    assert {task["priority"] for task in coming} == {14}, "what is to come is of the last version"
    assert [task["fire_at"] for task in coming] == [
        coming[0]["fire_at"] + n * SECOND for n in range(len(coming))
    ]
    assert row["fired_count"] == len(fires(scheduling))
    orphans = (
        "SELECT FROM sched_task_instance i WHERE NOT EXISTS (SELECT FROM sched_task t WHERE t.id = i.task_id)"
    )
    assert scheduling.all(orphans) == []


async def test_edits_while_agents_claim_leave_what_is_claimed_alone(
    scheduling: Engine, generator: Generator
) -> None:
    await scheduling.apply(SECONDLY)
    await everything(generator)
    schedule = await scheduling.schedule("secondly")
    claimed: set[UUID] = set()

    async def claim() -> None:
        for _ in range(10):
            rows = scheduling.all(
                "UPDATE sched_task_instance SET status = 'reserved', token = gen_random_uuid(), "
                "agent_id = gen_random_uuid(), session_id = gen_random_uuid(), "
                "reserved_until = now() + interval '1 hour' WHERE id = ANY(ARRAY(SELECT id FROM "
                "sched_task_instance WHERE status = 'pending' ORDER BY due_at LIMIT 3 FOR UPDATE SKIP LOCKED"
                ")) RETURNING id",
            )
            claimed.update(row["id"] for row in rows)
            await asyncio.sleep(0)

    async def edit() -> None:
        for turn in range(6):
            await scheduling.schedules.enable(WHO, schedule.id, enabled=turn % 2 == 1)
            await generator.run_once()

    await asyncio.gather(claim(), edit())
    await scheduling.schedules.enable(WHO, schedule.id, enabled=False)
    alive = {row["id"] for row in scheduling.all("SELECT id FROM sched_task_instance")}
    assert claimed <= alive
    assert len(claimed) >= 10
    tasks = {row["id"] for row in scheduling.all("SELECT id FROM sched_task")}
    assert {row["task_id"] for row in scheduling.all("SELECT task_id FROM sched_task_instance")} == tasks


async def test_a_schedule_that_cannot_be_read_keeps_none_of_the_others(
    scheduling: Engine, generator: Generator
) -> None:
    await scheduling.apply(SECONDLY, {"name": "broken", "every": "1s"})
    scheduling.rows.execute(
        "UPDATE sched_schedule SET spec = spec || %s::jsonb WHERE name = 'broken'",
        [json.dumps({"every": "soon"})],
    )
    broken = row_of(scheduling, "broken")
    await everything(generator)
    assert len(fires(scheduling)) >= 58
    after = row_of(scheduling, "broken")
    assert (after["cursor"], after["fired_count"]) == (broken["cursor"], 0)
    assert after["next_fire_at"] > scheduling.now() + MINUTE, "it is looked at again later, not all the time"


async def test_a_due_schedule_is_found_by_its_index(scheduling: Engine) -> None:
    await scheduling.apply(*({"name": f"s{n}", "cron": "0 0 1 1 *"} for n in range(900)), SECONDLY)
    scheduling.rows.execute("ANALYZE sched_schedule")
    plan = scheduling.one(
        f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {store._DUE}".replace(
            "%(until)s", "now() + interval '1 min'"
        )
        .replace("%(most)s", "100")
        .replace("%(after_at)s", "'-infinity'")
        .replace("%(after_id)s", "gen_random_uuid()")
    )["QUERY PLAN"][0]["Plan"]
    text = json.dumps(plan)
    assert "sched_schedule_next_fire_at_idx" in text
    assert '"Actual Rows": 9' not in text, "no node reads them all"


async def test_moving_cursors_reads_only_those_that_move(scheduling: Engine) -> None:
    await scheduling.apply(*({"name": f"s{n}", "cron": "0 0 1 1 *"} for n in range(900)), SECONDLY)
    scheduling.rows.execute("ANALYZE sched_schedule")
    row = row_of(scheduling, "secondly")
    advance = store.Advance(
        row["id"], row["version"], row["cursor"], row["cursor"] + SECOND, None, row["cursor"] + 2 * SECOND, 1
    )
    sql = store._ADVANCE
    for name in ("id", "version", "cursor", "new_cursor", "decided_until", "next_fire_at", "fired"):
        sql = sql.replace(f"%({name})s", "%s")
    values = [[getattr(advance, name)] for name in advance.__slots__]
    plan = json.dumps(scheduling.one(f"EXPLAIN (FORMAT JSON) {sql}", *values, values[0])["QUERY PLAN"])
    assert '"Seq Scan"' not in plan
    assert "sched_schedule_pkey" in plan
    assert '"Tid Scan"' in plan, "what is locked is not looked for once more"
