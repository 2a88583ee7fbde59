"""Namespaces, jobs and their versions."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.resources.jobs import Job, JobVersionSummary
from hetuflow_server.postgres.batches import Int, Json, transpose
from hetuflow_server.postgres.connection import Connection


@dataclass(frozen=True, slots=True)
class JobRow:
    id: UUID
    namespace_id: int
    namespace: str
    name: str
    enabled: bool
    version: int
    digest: bytes
    placement_id: int
    spec: dict[str, Any]


_JOB = """
SELECT j.id, j.namespace_id, n.name AS namespace, j.name, j.enabled, j.version, v.digest, v.placement_id,
       v.spec
FROM sched_job j JOIN sched_namespace n ON n.id = j.namespace_id
JOIN sched_job_version v ON v.job_id = j.id AND v.version = j.version
WHERE j.deleted_at IS NULL"""

_JOB_BY_NAME = f"{_JOB} AND j.namespace_id = %(namespace_id)s AND j.name = %(name)s FOR UPDATE OF j"
# In the order in which everybody takes them: two edits at once must not wait in a ring.
_LOCK_NAMED = f"""{_JOB}
  AND (j.namespace_id, j.name) IN (SELECT * FROM unnest(%(namespaces)s::integer[], %(names)s::text[]))
ORDER BY n.name COLLATE "C", j.name COLLATE "C" FOR UPDATE OF j"""
_JOB_NAMED = f"{_JOB} AND j.namespace_id = %(namespace_id)s AND j.name = %(name)s"
_JOB_BY_ID = f"{_JOB} AND j.id = %(id)s"
_LOCK_JOB = f"{_JOB_BY_ID} FOR UPDATE OF j"

_JOB_VERSION = """
SELECT j.id, j.namespace_id, n.name AS namespace, j.name, j.enabled, v.version, v.digest, v.placement_id,
       v.spec
FROM sched_job_version v JOIN sched_job j ON j.id = v.job_id JOIN sched_namespace n ON n.id = j.namespace_id
WHERE v.job_id = %(id)s AND v.version = %(version)s"""

_SHOWN = """
SELECT j.id, n.name AS namespace, j.name, j.enabled, j.version, j.labels, j.created_at, j.updated_at, j.owner,
       v.spec || jsonb_build_object('schedules', coalesce(
         (SELECT jsonb_agg(s.spec ORDER BY s.name) FROM sched_schedule s
          WHERE s.job_id = j.id AND s.deleted_at IS NULL), '[]'::jsonb)) AS spec"""

_VERSION_OF_JOB = "JOIN sched_job_version v ON v.job_id = j.id AND v.version = j.version"

_GET = f"""
{_SHOWN} FROM sched_job j JOIN sched_namespace n ON n.id = j.namespace_id {_VERSION_OF_JOB}
WHERE j.deleted_at IS NULL AND j.id = %(id)s"""

# Of each namespace no more than a page: all of them would be sorted before the first is shown.
_LIST = f"""
{_SHOWN} FROM sched_namespace n CROSS JOIN LATERAL (
  SELECT * FROM sched_job
  WHERE namespace_id = n.id AND deleted_at IS NULL AND (%(name)s::text IS NULL OR name = %(name)s)
    AND labels @> %(labels)s::jsonb
    AND name > CASE n.name WHEN %(after_namespace)s::text THEN %(after)s::text ELSE '' END
  ORDER BY name LIMIT %(limit)s) j {_VERSION_OF_JOB}
WHERE (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s))
  AND (%(after_namespace)s::text IS NULL OR n.name >= %(after_namespace)s)
ORDER BY n.name, j.name LIMIT %(limit)s"""

_VERSIONS = """
SELECT version, created_at, created_by, spec FROM sched_job_version
WHERE job_id = %(id)s AND (%(before)s::integer IS NULL OR version < %(before)s)
ORDER BY version DESC LIMIT %(limit)s"""

_COUNT = """
SELECT count(*) FROM (
  SELECT FROM sched_job j JOIN sched_namespace n ON n.id = j.namespace_id
  WHERE j.deleted_at IS NULL AND (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s))
    AND (%(name)s::text IS NULL OR j.name = %(name)s) AND j.labels @> %(labels)s::jsonb
  LIMIT %(cap)s) counted"""


async def job_by_name(connection: Connection, namespace_id: int, name: str) -> JobRow | None:
    """Return a job and lock it against other changes."""
    row = (await connection.execute(_JOB_BY_NAME, {"namespace_id": namespace_id, "name": name})).one_or_none()
    return _job_row(row) if row else None


async def lock_named(
    connection: Connection, wanted: Sequence[tuple[int, str]]
) -> dict[tuple[int, str], JobRow]:
    """Return and lock those of these jobs there are, by (namespace, name)."""
    if not wanted:
        return {}
    rows = await connection.execute(
        _LOCK_NAMED, {"namespaces": [id_ for id_, _ in wanted], "names": [name for _, name in wanted]}
    )
    return {(row.namespace_id, row.name): _job_row(row) for row in rows}


async def job_named(connection: Connection, namespace_id: int, name: str) -> JobRow | None:
    """Return a job as it is now, without locking it."""
    row = (await connection.execute(_JOB_NAMED, {"namespace_id": namespace_id, "name": name})).one_or_none()
    return _job_row(row) if row else None


async def names(connection: Connection, namespace_id: int) -> list[str]:
    """Return the names of a namespace's jobs, for whoever has misspelt one."""
    rows = await connection.execute(
        "SELECT name FROM sched_job WHERE namespace_id = %(id)s AND deleted_at IS NULL LIMIT 10000",
        {"id": namespace_id},
    )
    return list(rows.scalars())


async def job_by_id(connection: Connection, id_: UUID) -> JobRow | None:
    row = (await connection.execute(_JOB_BY_ID, {"id": id_})).one_or_none()
    return _job_row(row) if row else None


async def lock_job(connection: Connection, id_: UUID) -> JobRow | None:
    """Return a job and lock it against other changes."""
    row = (await connection.execute(_LOCK_JOB, {"id": id_})).one_or_none()
    return _job_row(row) if row else None


async def enable_job(connection: Connection, id_: UUID, *, enabled: bool) -> None:
    await connection.execute(
        "UPDATE sched_job SET enabled = %(enabled)s, updated_at = clock_timestamp() WHERE id = %(id)s",
        {"id": id_, "enabled": enabled},
    )


async def delete_job(connection: Connection, id_: UUID) -> None:
    """Let a job's name go; its versions stay for what still runs and for the history."""
    await connection.execute(
        "UPDATE sched_job SET enabled = false, deleted_at = clock_timestamp(), "
        "updated_at = clock_timestamp() WHERE id = %(id)s",
        {"id": id_},
    )


async def job_version(connection: Connection, id_: UUID, version: int) -> JobRow:
    """Return a job as it was in that version; versions never change, and never go while work needs them."""
    row = (await connection.execute(_JOB_VERSION, {"id": id_, "version": version})).one()
    return _job_row(row)


async def shown(connection: Connection, id_: UUID) -> Job | None:
    """Return a job as people see it."""
    row = (await connection.execute(_GET, {"id": id_})).one_or_none()
    return Job(**row.as_dict()) if row else None


async def list_jobs(
    connection: Connection,
    *,
    namespaces: Sequence[str] | None = None,
    name: str | None = None,
    labels: Mapping[str, str] | None = None,
    after: tuple[str, str] | None = None,
    limit: int,
) -> list[Job]:
    """Return jobs by namespace and name, from behind `after` (namespace, name)."""
    rows = await connection.execute(
        _LIST,
        {
            "namespaces": namespaces,
            "name": name,
            "labels": _json(dict(labels or {})),
            "after_namespace": after[0] if after else None,
            "after": after[1] if after else None,
            "limit": limit,
        },
    )
    return [Job(**row.as_dict()) for row in rows]


async def count_jobs(
    connection: Connection,
    *,
    namespaces: Sequence[str] | None,
    name: str | None,
    labels: Mapping[str, str] | None,
    cap: int,
) -> int:
    wanted = {"namespaces": namespaces, "name": name, "labels": _json(dict(labels or {})), "cap": cap}
    return int((await connection.execute(_COUNT, wanted)).scalar_one())


async def versions(
    connection: Connection, id_: UUID, *, before: int | None, limit: int
) -> tuple[list[JobVersionSummary], int]:
    """Return a job's versions, newest first, and how many there are."""
    rows = await connection.execute(_VERSIONS, {"id": id_, "before": before, "limit": limit})
    total = await connection.execute(
        "SELECT count(*) FROM sched_job_version WHERE job_id = %(id)s", {"id": id_}
    )
    return [JobVersionSummary(**row.as_dict()) for row in rows], int(total.scalar_one())


@dataclass(frozen=True, slots=True)
class NewVersion:
    """A job as it is to be from now on."""

    job_id: UUID
    namespace_id: Int
    name: str
    version: Int
    labels: Json
    spec: Json
    digest: bytes
    placement_id: int

    @classmethod
    def of(cls, job: JobRow, labels: Mapping[str, str]) -> NewVersion:
        """`job` with these labels."""
        return cls(
            *(job.id, job.namespace_id, job.name, job.version, _json(dict(labels)), _json(job.spec)),
            digest=job.digest,
            placement_id=job.placement_id,
        )


_NEW_JOBS = """
INSERT INTO sched_job (id, namespace_id, name, version, labels)
SELECT * FROM unnest(%(job_id)s::uuid[], %(namespace_id)s::integer[], %(name)s::text[],
                     %(version)s::integer[], %(labels)s::jsonb[])"""

_CHANGED_JOBS = """
UPDATE sched_job j SET version = w.version, labels = w.labels, updated_at = clock_timestamp()
FROM unnest(%(job_id)s::uuid[], %(version)s::integer[], %(labels)s::jsonb[]) AS w(id, version, labels)
WHERE j.id = w.id AND j.version = w.version - 1"""

_NEW_VERSIONS = """
INSERT INTO sched_job_version (job_id, version, spec, digest, placement_id, created_by)
SELECT w.*, %(by)s
FROM unnest(%(job_id)s::uuid[], %(version)s::integer[], %(spec)s::jsonb[], %(digest)s::bytea[],
            %(placement_id)s::bigint[]) AS w"""


async def insert_jobs(connection: Connection, jobs: Sequence[NewVersion], by: str | None) -> None:
    if jobs:
        await connection.execute(_NEW_JOBS, transpose(NewVersion, jobs))
        await connection.execute(_NEW_VERSIONS, {**transpose(NewVersion, jobs), "by": by})


async def change_jobs(connection: Connection, jobs: Sequence[NewVersion], by: str | None) -> None:
    """Add a version to each of these locked jobs and make it the current one."""
    if jobs:
        await connection.execute(_CHANGED_JOBS, transpose(NewVersion, jobs))
        await connection.execute(_NEW_VERSIONS, {**transpose(NewVersion, jobs), "by": by})


def _job_row(row: Any) -> JobRow:
    return JobRow(**{**row.as_dict(), "digest": bytes(row.digest)})


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()
