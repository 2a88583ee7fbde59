"""What a claim and a finish cost when much else waits that is not for the agent that asks.

The services of a server are timed while other work stands around: of a hundred or of ten thousand other
classes, of one class no agent here fits, due only tomorrow, or with a transaction somebody left open while
twenty thousand instances came and went, which keeps their dead rows from being cleaned away.

Held against the same on an empty queue, measured in turns: the aim is a ratio near 1.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AsyncExitStack, contextmanager
from dataclasses import dataclass

import psycopg

from bench.figure import Aim, Context, Figure
from bench.scene import Scene, measure_in_turns, scene
from bench.simulated import in_event_loop

_AIM = Aim(1.5, at_least=False)
_AIM_SNAPSHOT = Aim(5, at_least=False, best=2)
_AIM_FINISH_SNAPSHOT = Aim(5, at_least=False)
# Instances that come and go while a transaction is open, and leave dead rows behind.
# By pace.
_GONE = (500, 1_000, 20_000, 20_000)
_MANY = (200, 10_000, 100_000, 100_000)

_CLASSES = """
INSERT INTO sched_placement (digest, requirements)
SELECT decode(md5(n::text), 'hex'), jsonb_build_object('labels', jsonb_build_object('rack', n::text))
FROM generate_series(1, %(classes)s) n RETURNING id"""

# A class of which the agent could take everything, were there room for more.
_LIMITED = """
INSERT INTO sched_placement (digest, requirements, limit_scopes)
VALUES ('full', '{}', ARRAY['tool:full']) RETURNING id"""
_FULL = (
    "INSERT INTO sched_limit (namespace_id, scope, max, in_use, named) VALUES (1, 'tool:full', 1, 1, true)"
)

_WAITING = """
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, seq, attempt,
                                 status, held_reason, priority, fire_at, due_at, lease_ms)
SELECT gen_random_uuid(), gen_random_uuid(), 1, (%(placements)s::bigint[])[1 + n %% %(classes)s], %(job)s,
       1, 1, 1, CASE WHEN %(paused)s THEN 'held' ELSE 'pending' END,
       CASE WHEN %(paused)s THEN 'paused' END, 500,
       now() + %(due_in)s::interval, now() + %(due_in)s::interval, 300000
FROM generate_series(1, %(rows)s) n"""


@dataclass(frozen=True, slots=True)
class Surroundings:
    name: str
    what: Callable[[int], str]
    # 0: of the very class that is claimed.
    classes: int
    due_in: str
    snapshot: bool = False
    # Under a limit that has no room, and of a job that is paused.
    full: bool = False
    paused: bool = False


_SURROUNDINGS = (
    Surroundings("classes_100", lambda rows: f"{rows:,} waiting of 100 other classes", 100, "-1 hour"),
    Surroundings(
        "classes_10000", lambda rows: f"{rows:,} waiting of 10,000 other classes", 10_000, "-1 hour"
    ),
    Surroundings("foreign", lambda rows: f"{rows:,} waiting that fit no agent here", 1, "-1 hour"),
    Surroundings("full", lambda rows: f"{rows:,} waiting under a full limit", 1, "-1 hour", full=True),
    Surroundings("paused", lambda rows: f"{rows:,} held back, paused", 0, "-1 hour", paused=True),
    Surroundings("future", lambda rows: f"{rows:,} of the same class due tomorrow", 0, "1 day"),
    Surroundings("snapshot", lambda _: "a transaction left open", 0, "0", snapshot=True),
)


def measure(context: Context) -> Figure:
    empty, *full = in_event_loop(lambda: _measure(context))
    *backlogs, snapshot = full
    lines = [line for one in backlogs for line in one.lines(empty, _AIM)]
    return Figure("claim-backlog", [*lines, *snapshot.lines(empty, _AIM_SNAPSHOT, _AIM_FINISH_SNAPSHOT)])


async def _measure(context: Context) -> list[Scene]:
    rows = context.pace.sized(*_MANY)
    async with AsyncExitStack() as stack:
        scenes = [await stack.enter_async_context(scene(context, "an empty queue", "queue_empty"))]
        for one in _SURROUNDINGS:
            what = one.what(rows)
            context.say(f"claim backlog: {what}")
            made = await stack.enter_async_context(scene(context, what, f"queue_{one.name}"))
            if one.snapshot:
                stack.enter_context(_snapshot(made.url))
                await made.come_and_go(context.pace.sized(*_GONE))
            else:
                _fill(made, one, rows)
            scenes.append(made)
        await measure_in_turns(context, "claim backlog", scenes)
        return scenes


@contextmanager
def _snapshot(url: str) -> Iterator[None]:
    """A transaction that has looked once and never ends."""
    with psycopg.connect(url) as reader:
        reader.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
        reader.execute("SELECT count(*) FROM sched_task_instance")
        yield


def _fill(made: Scene, around: Surroundings, rows: int) -> None:
    with psycopg.connect(made.url, autocommit=True) as connection:
        if around.full:
            connection.execute(_FULL)
            placements = [id_ for (id_,) in connection.execute(_LIMITED)]
        elif around.classes:
            placements = [id_ for (id_,) in connection.execute(_CLASSES, {"classes": around.classes})]
        else:
            found = connection.execute(
                "SELECT placement_id FROM sched_job_version WHERE job_id = %s", [made.job]
            ).fetchone()
            placements = [found[0]] if found else []
        connection.execute(
            _WAITING,
            {
                "placements": placements,
                "classes": len(placements),
                "job": made.job,
                "due_in": around.due_in,
                "paused": around.paused,
                "rows": rows,
            },
        )
        connection.execute("VACUUM ANALYZE sched_task_instance")
