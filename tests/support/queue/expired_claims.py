"""Claims in every state that rescue looks at, and time that has passed."""

from __future__ import annotations

from datetime import timedelta

from hetuflow_server.queue.rows import Claimed
from tests.support.queue.claiming_engine import Engine

# As an expression of SQL.
JUST_OVER = "clock_timestamp() - interval '1 s'"


async def run_one(engine: Engine, **spec: object) -> Claimed:
    one = await reserve_one(engine, **spec)
    await engine.start(one)
    return one


async def reserve_one(engine: Engine, **spec: object) -> Claimed:
    await engine.run(await engine.job(**spec))
    (one,) = await engine.claim(1)
    return one


def write(engine: Engine, one: Claimed, **columns: object) -> None:
    """Write into the row of a claim; values are expressions of SQL."""
    changes = ", ".join(f"{name} = {value}" for name, value in columns.items())
    engine.rows.execute(f"UPDATE sched_task_instance SET {changes} WHERE id = %s", [one.id])


def seconds_left(engine: Engine, one: Claimed) -> float | None:
    """Seconds until the lease of a claim ends."""
    row = engine.rows.execute(
        "SELECT extract(epoch FROM lease_until - clock_timestamp()) FROM sched_task_instance WHERE id = %s",
        [one.id],
    ).fetchone()
    assert row is not None
    return None if row[0] is None else float(row[0])


def status_of(engine: Engine, one: Claimed) -> tuple[str, str | None]:
    row = engine.rows.execute(
        "SELECT status, reason FROM sched_task_instance_all WHERE id = %s", [one.id]
    ).fetchone()
    assert row is not None
    return row[0], row[1]


def nobody_looked_for(engine: Engine, seconds: float) -> None:
    """Nobody has looked for so long."""
    engine.rows.execute(
        "UPDATE sched_namespace SET rescued_at = clock_timestamp() - %s", [timedelta(seconds=seconds)]
    )


def another_namespace(engine: Engine) -> int:
    made = engine.rows.execute("INSERT INTO sched_namespace (name) VALUES ('other') RETURNING id").fetchone()
    assert made is not None
    return int(made[0])
