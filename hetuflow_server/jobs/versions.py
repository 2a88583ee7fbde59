"""Job versions as the engine uses them; they never change, so they are read once."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from typing import Any
from uuid import UUID

import msgspec
from cachetools import LRUCache

from hetuflow_core import messages as m
from hetuflow_core.errors import Invalid
from hetuflow_core.ids import EPOCH
from hetuflow_core.jobfile import JobSpec, from_document
from hetuflow_core.jobfile.artifacts import InputSpec
from hetuflow_core.jobfile.run import DEFAULT_SHELL, Run
from hetuflow_core.limits import key_scope
from hetuflow_core.retry import RetryPolicy
from hetuflow_core.states import HeldReason
from hetuflow_core.templates.rendering import has_expression, render, render_value
from hetuflow_server.jobs import store as job_store
from hetuflow_server.jobs.leases_store import lease_of_work
from hetuflow_server.placement import store as placement_store
from hetuflow_server.postgres.database import Connection, Database

_MOST_CACHED = 10_000


@dataclass(frozen=True, slots=True)
class JobVersion:
    job_id: UUID
    version: int
    namespace_id: int
    namespace: str
    name: str
    enabled: bool
    placement_id: int
    spec: JobSpec

    @property
    def run(self) -> Run:
        if self.spec.run is None:
            raise Invalid(f"{self.name} is a flow: its nodes are run, not itself.")
        return self.spec.run

    @property
    def retry(self) -> RetryPolicy:
        return self.spec.retry

    @property
    def skip_exit_codes(self) -> frozenset[int]:
        return frozenset(self.spec.skip_exit_codes)

    @property
    def reads_output(self) -> bool:
        """Whether a retry depends on what the work wrote."""
        return any(rule.when.output is not None for rule in self.spec.retry.rules)

    def deadline_at(self, due_at: datetime) -> datetime | None:
        """When a task that is first due then has to have ended."""
        if self.spec.deadline is None:
            return None
        try:
            return due_at + self.spec.deadline
        except OverflowError:
            return None  # beyond the last year there is

    @property
    def timeout(self) -> timedelta | None:
        return self.spec.timeout

    @property
    def kill_grace(self) -> timedelta:
        return self.spec.kill_grace

    @property
    def on_lost(self) -> str:
        return str(self.spec.on_lost)

    @property
    def has_keys(self) -> bool:
        """Whether its instances may have to wait for others of the same key."""
        return self.spec.concurrency.key is not None

    @property
    def is_flow(self) -> bool:
        return self.spec.flow is not None

    @property
    def lease_ms(self) -> int | None:
        """As new instances take it; None for a flow, which no agent runs."""
        return None if self.is_flow else lease_of_work(self.spec.lease)

    @property
    def held_at_first(self) -> HeldReason | None:
        """Why its instances cannot be claimed as they are made."""
        return HeldReason.FLOW if self.is_flow else None

    def check(self, params: Mapping[str, Any], *, at: datetime) -> None:
        """Raise Invalid unless it can be run with these parameters."""
        if not self.is_flow:
            self.render(params, task_id=self.job_id, attempt=1, fire_at=at)
        self.concurrency_key(params, task_id=self.job_id, fire_at=at)

    def render(
        self,
        params: Mapping[str, Any],
        *,
        task_id: UUID,
        attempt: int,
        fire_at: datetime,
        seen: Mapping[str, Any] | None = None,
    ) -> m.RunSpec:
        """Fill the templates; raise Invalid naming what is not defined. `seen`: of a flow's node."""
        context = {**(seen or {}), **self._context(params, task_id, attempt, fire_at)}
        run = self.run
        return m.RunSpec(
            command=[render(word, context) for word in run.command] if run.command else None,
            script=run.script,
            shell=run.shell or DEFAULT_SHELL,
            env={name: render(value, context) for name, value in run.plain_env.items()} | _shard(run, seen),
            workdir=run.workdir,
            user=run.user,
            executor=run.required_executor,
            options=_options(run, params, context),
            inputs=[_input(file, context) for file in run.artifacts.inputs],
            outputs=list(run.artifacts.outputs),
            secrets=_secret_places(run),
        )

    def plain_run(self) -> m.RunSpec | None:
        """What to execute if that is the same for every task, whatever its parameters; else None."""
        run = self.spec.run
        if run is None or run.python is not None or _has_templates(msgspec.to_builtins(run)):
            return None
        return self.render({}, task_id=self.job_id, attempt=1, fire_at=EPOCH)

    def concurrency_key(self, params: Mapping[str, Any], *, task_id: UUID, fire_at: datetime) -> str | None:
        """The scope a task's instances count under beside those of the class; rendered when it is created."""
        key = self.spec.concurrency.key
        if key is None:
            return None
        return key_scope(self.job_id, render(key, self._context(params, task_id, 1, fire_at)))

    def _context(
        self, params: Mapping[str, Any], task_id: UUID, attempt: int, fire_at: datetime
    ) -> dict[str, Any]:
        return {
            "params": params,
            "job": {"name": self.name, "version": self.version},
            "namespace": self.namespace,
            "task": {"id": str(task_id), "attempt": attempt, "fire_at": fire_at.isoformat()},
        }


def _has_templates(value: Any) -> bool:
    if isinstance(value, str):
        return has_expression(value)
    if isinstance(value, Mapping):
        return any(map(_has_templates, value.values()))
    return isinstance(value, (list, tuple)) and any(map(_has_templates, value))


def _input(file: InputSpec, context: Mapping[str, Any]) -> m.InputFile:
    if file.origin is None:
        return m.InputFile(file.path, content=render(file.content or "", context))
    origin = file.origin
    return m.InputFile(
        file.path, source=m.ArtifactSource(origin.path, origin.job, _task(origin.task, context))
    )


def _task(template: str | None, context: Mapping[str, Any]) -> UUID | None:
    if template is None:
        return None
    text = render(template, context)
    try:
        return UUID(text)
    except ValueError:
        raise Invalid(f"{text[:80]!r} is not the id of a task that an input could come from.") from None


def _options(run: Run, params: Mapping[str, Any], context: Mapping[str, Any]) -> dict[str, Any]:
    """Return what an executor other than `command` is told, rendered."""
    told: dict[str, Any] = {}
    if run.http is not None:
        said = msgspec.to_builtins(run.http) | {"headers": run.http.plain_headers}
        told = render_value(said, context)
    elif run.python is not None:
        # Params are values already: what looks like a template in them is none.
        kwargs = params if run.python.kwargs is None else render_value(run.python.kwargs, context)
        told = {"function": run.python.function, "kwargs": dict(kwargs)}
    elif run.other is not None:
        told = render_value(run.other.options, context)
    return told


def _secret_places(run: Run) -> list[m.SecretPlace]:
    headers = run.http.secret_headers if run.http is not None else {}
    return [
        *(m.SecretPlace(use.secret, env=name, prefix=use.prefix) for name, use in run.secret_env.items()),
        *(m.SecretPlace(use.secret, header=name, prefix=use.prefix) for name, use in headers.items()),
        *(m.SecretPlace(name) for name in run.secrets),
    ]


class JobVersions:
    def __init__(self) -> None:
        # By job, version, and node of its flow.
        self._cached: LRUCache[tuple[UUID, int, str | None], JobVersion] = LRUCache(_MOST_CACHED)
        self._latest: LRUCache[UUID, JobVersion] = LRUCache(_MOST_CACHED)

    async def find(
        self, database: Database, job_id: UUID, version: int, node: str | None = None
    ) -> JobVersion:
        """Return a version outside of any transaction; one is opened only when it is not known yet."""
        if (known := self._cached.get((job_id, version, node))) is not None:
            return known
        async with database.transaction() as connection:
            return await self.get(connection, job_id, version, node)

    async def get(
        self, connection: Connection, job_id: UUID, version: int, node: str | None = None
    ) -> JobVersion:
        """Return a version of a job, or what it says of the work of one of its flow's nodes."""
        key = (job_id, version, node)
        if (found := self._cached.get(key)) is not None:
            return found
        if node is None:
            return self._keep(from_row(await job_store.job_version(connection, job_id, version)))
        flow = await self.get(connection, job_id, version)
        spec = _work(flow, node)
        placement_id = await placement_store.intern(connection, spec.requirements, spec.limits)
        return self._keep(replace(flow, spec=spec, placement_id=placement_id), node)

    def of(self, row: job_store.JobRow) -> JobVersion:
        """Return the version a row is of; whether the job is enabled is the row's to say."""
        version = self._cached.get((row.id, row.version, None)) or self._keep(from_row(row))
        self._latest[row.id] = version
        return version

    def latest(self, job_id: UUID) -> JobVersion | None:
        """Return the version a job had when last read here; whatever is written by it has to look again."""
        return self._latest.get(job_id)

    def _keep(self, version: JobVersion, node: str | None = None) -> JobVersion:
        self._cached[version.job_id, version.version, node] = version
        return version


def _shard(run: Run, seen: Mapping[str, Any] | None) -> dict[str, str]:
    """Which item of a map a process is to do; what starts none is told through templates."""
    if seen is None or "index" not in seen or run.required_executor is not None:
        return {}
    return {"HETUFLOW_SHARD_INDEX": str(seen["index"]), "HETUFLOW_SHARD_TOTAL": str(seen["total"])}


def _work(flow: JobVersion, node: str) -> JobSpec:
    found = None if flow.spec.flow is None else flow.spec.flow.node(node).work
    if found is None:
        raise Invalid(f"{flow.name} has no node {node} with work of its own.")
    return found


def from_row(row: job_store.JobRow) -> JobVersion:
    return JobVersion(
        job_id=row.id,
        version=row.version,
        namespace_id=row.namespace_id,
        namespace=row.namespace,
        name=row.name,
        enabled=row.enabled,
        placement_id=row.placement_id,
        spec=from_document(row.spec),
    )
