"""Runs are made by the version of a job that is known here; whether it still is its own is looked at then."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace
from typing import Any
from uuid import UUID

import psycopg
import pytest

from hetuflow_core.errors import Conflict, Invalid, NotFound
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_server.jobs import store as job_store
from hetuflow_server.queue.rows import NewInstance
from hetuflow_server.tasks import actions as task_actions
from tests.support.queue.claiming_engine import Engine, engine_on


@pytest.fixture
async def engine(fresh_database_url: str) -> AsyncIterator[Engine]:
    async with engine_on(fresh_database_url) as engine:
        yield engine


async def test_a_job_is_read_once_and_seen_as_it_is_now(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another server changes it: here nobody is told."""
    read, reads = job_store.job_by_id, list[UUID]()

    async def counted(connection: object, id_: UUID) -> job_store.JobRow | None:
        reads.append(id_)
        return await read(connection, id_)  # type: ignore[arg-type]  # passed on as it came

    monkeypatch.setattr(job_store, "job_by_id", counted)
    job = await engine.job("known", params={"a": 1})
    await engine.run(job)
    [task] = await engine.run(job)
    assert (await engine.task(task)).job_version == 1
    assert reads == [job], "what is known is not read again"

    assert await engine.job("known", params={"a": 2}) == job
    [task] = await engine.run(job)
    found = await engine.task(task)
    assert (found.job_version, found.params) == (2, {"a": 2})
    await engine.run(job, RunRequest(), RunRequest())
    assert len(reads) == 2

    engine.rows.execute("UPDATE sched_job SET enabled = false WHERE id = %s", [job])
    with pytest.raises(Conflict) as disabled:
        await engine.run(job)
    assert disabled.value.code == "job.disabled"
    engine.rows.execute("UPDATE sched_job SET enabled = true WHERE id = %s", [job])
    await engine.run(job)
    engine.rows.execute("UPDATE sched_job SET deleted_at = now() WHERE id = %s", [job])
    with pytest.raises(NotFound) as gone:
        await engine.run(job)
    assert gone.value.code == "job.not_found"
    made = engine.rows.execute("SELECT count(*) FROM sched_task").fetchone()
    assert made == (6,), "what was refused has made nothing"


async def test_what_does_not_fit_the_version_that_is_known_may_fit_the_next(engine: Engine) -> None:
    deep = {"command": ["echo", "{{ params.a.b }}"]}
    job = await engine.job("fits", run=deep, params={"a": {"b": 1}})
    await engine.run(job)
    with pytest.raises(Invalid):
        await engine.run(job, RunRequest(params={"a": 1}))
    await engine.job("fits", run={"command": ["echo", "{{ params.a }}"]}, params={"a": 1})
    [task] = await engine.run(job, RunRequest(params={"a": 1}))
    assert (await engine.task(task)).job_version == 2
    # And what fits the known one is refused by the next.
    await engine.job("fits", run=deep, params={"a": {"b": 1}})
    with pytest.raises(Invalid):
        await engine.run(job, RunRequest(params={"a": 1}))


async def test_a_job_that_is_known_may_have_keys_or_get_them(engine: Engine) -> None:
    keyed = {"concurrency": {"key": "{{ params.who }}"}, "params": {"who": "a"}}
    job = await engine.job("keyed", params={"who": "a"})
    await engine.run(job)
    await engine.job("keyed", **keyed)
    for _ in range(2):
        [task] = await engine.run(job)
        assert [one.status for one in (await engine.task(task)).instances] == ["pending"]
    assert len(await engine.claim()) == 2, "one without a key, one of the key"
    [task] = await engine.run(job)
    assert [one.held_reason for one in (await engine.task(task)).instances] == ["key"]


async def test_what_is_wrong_with_a_row_is_not_taken_for_a_job_that_has_changed(
    engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It would be read again and made again, and be as wrong as before."""
    job = await engine.job("known")
    await engine.run(job)
    make = task_actions.first_instance

    def without_placement(*arguments: Any) -> NewInstance:
        return replace(make(*arguments), placement_id=None)  # type: ignore[arg-type]  # that is the fault

    monkeypatch.setattr(task_actions, "first_instance", without_placement)
    with pytest.raises(psycopg.errors.NotNullViolation, match="placement_id"):
        await asyncio.wait_for(engine.run(job), 10)
