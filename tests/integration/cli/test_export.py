"""What is exported changes nothing when it is applied."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from hetuflow_core.fields.nodes import plain
from hetuflow_core.jobfile import JobSpec, load_documents, parse_documents, raw_documents, write_yaml
from hetuflow_core.resources.apply import ApplyAction
from hetuflow_server.app.schedule_edits import schedule_edits
from hetuflow_server.cli.export_documents import calendar_of, job_of, limit_of
from hetuflow_server.limits.service import Limits
from hetuflow_server.postgres.database import Database
from hetuflow_server.schedules.calendars.actions import CalendarActions
from tests.support.job_documents import FULL
from tests.support.queue.engine import WHO, Engine
from tests.unit.jobfile.test_jobfile_canonical import jobs

ALL: dict[str, Any] = {"namespace": None, "after": None, "limit": 500, "cap": 1000}


async def assert_same_when_exported(engine: Engine, least: int) -> None:
    found, _ = await engine.applying.list_jobs(WHO, name=None, **ALL)
    calendars, _ = await CalendarActions(engine.database, engine.clock, schedule_edits()).list_calendars(
        WHO, **ALL
    )
    limits, _ = await Limits(engine.database, engine.hints).list_limits(WHO, **ALL)
    exported = [*map(calendar_of, calendars), *map(limit_of, limits), *map(job_of, found)]
    assert len(exported) >= least
    text = write_yaml([one.document for one in exported])
    documents = [plain(document.root) for document in parse_documents(text, "yaml", "")]
    result = await engine.applying.apply(WHO, documents, dry_run=True)
    assert [item for item in result.items if item.action is not ApplyAction.UNCHANGED] == []


def without_secrets(value: Any) -> Any:
    """The engine under test has no key to keep any."""
    if isinstance(value, dict):
        kept = {key: without_secrets(item) for key, item in value.items() if key != "secrets"}
        return {key: item for key, item in kept.items() if not (isinstance(item, dict) and "secret" in item)}
    return [without_secrets(item) for item in value] if isinstance(value, list) else value


async def test_documents_with_every_key_come_back_as_they_were(scheduling: Engine) -> None:
    days = [
        {"kind": "calendar", "name": name, "weekdays": ["sat"]} for name in ("holidays", "workdays", "other")
    ]
    other = {"kind": "job", "name": "other", "flow": {"nodes": [{"name": "x", "job": "full"}]}}
    limit = {"kind": "limit", "name": "tool:claude", "max": 1}
    full = [without_secrets(one) for one in FULL if one["kind"] not in {"secret", "webhook"}]
    documents = [*full, *days, other, limit]
    await scheduling.applying.apply(WHO, documents, dry_run=False)
    await assert_same_when_exported(scheduling, len(documents) - 1)


@given(jobs)
@settings(
    max_examples=10,
    deadline=None,
    database=None,
    phases=[Phase.generate],  # shrinking would ask the database a thousand times
    suppress_health_check=list(HealthCheck),
)
def test_random_jobs_come_back_as_they_were(database_url: str, document: dict[str, Any]) -> None:
    asyncio.run(_random(database_url, document))


async def _random(database_url: str, document: dict[str, Any]) -> None:
    database = Database(
        database_url,
        pool_size=2,
        connect_timeout=timedelta(seconds=5),
        statement_timeout=timedelta(seconds=30),
    )
    await database.start()
    engine = Engine(database_url, database)
    try:
        wanted = {**document, "namespace": "default"}
        (spec,) = load_documents(raw_documents([wanted]))
        limits = spec.limits if isinstance(spec, JobSpec) else ()
        named = [{"kind": "limit", "name": name, "max": 1} for name in limits]
        await engine.applying.apply(WHO, [*named, wanted], dry_run=False)
        await assert_same_when_exported(engine, 1)
    finally:
        engine.close()
        await database.stop()
