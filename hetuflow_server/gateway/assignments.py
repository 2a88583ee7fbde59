"""From a claimed row to everything an agent needs to run it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from functools import lru_cache
from typing import Self
from uuid import UUID

import structlog

from hetuflow_core import ids, messages as m
from hetuflow_core.errors import Invalid
from hetuflow_core.placement import Resources
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.hints import Hints
from hetuflow_server.daemons.probes import NO_PROBES, DaemonProbes, ProbePair
from hetuflow_server.jobs.versions import JobVersion, JobVersions
from hetuflow_server.placement.classes import PlacementClasses
from hetuflow_server.postgres.database import Database
from hetuflow_server.queue import transitions
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.queue.rows import Claimed, Ending

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.claims")

_ALMOST_A_MILLISECOND = timedelta(microseconds=999)
_MOST_MOULDS = 10_000


class Assignments:
    def __init__(
        self,
        database: Database,
        versions: JobVersions,
        classes: PlacementClasses,
        finisher: Finisher,
        hints: Hints,
    ) -> None:
        self._database = database
        self._versions = versions
        self._classes = classes
        self._finisher = finisher
        self._hints = hints
        self._probes = DaemonProbes(database)
        # By job, version, and node of its flow.
        self._moulds: dict[tuple[UUID, int, str | None], _AssignmentTemplate] = {}

    async def make(self, claimed: Sequence[Claimed]) -> list[m.Assignment]:
        """Render what was claimed; what cannot be rendered ends here as failed, with the reason."""
        if not claimed:
            return []
        await self._learn(claimed)
        daemons = [row.id for row in claimed if row.slot is not None]
        probes = await self._probes.of(daemons) if daemons else {}
        made, broken = [], []
        templates: dict[tuple[int, int, str | None], _AssignmentTemplate] = {}
        for row in claimed:
            node = row.flow_node if row.flow_context is not None else None
            # The number inside an id compares quicker than the id.
            key = (row.job_id.int, row.job_version, node)
            template = templates.get(key)
            if template is None:
                version = await self._versions.find(self._database, row.job_id, row.job_version, node)
                template = templates[key] = self._template(version, node)
            try:
                run = template.run or _rendered(template.version, row)
            except Invalid as error:
                broken.append(_broken(row, error))
                continue
            resources = self._classes.of(row.placement_id).resources
            made.append(_assignment(row, template, run, resources, probes.get(row.id, NO_PROBES)))
        if broken:
            async with self._database.transaction() as connection:
                settled = await self._finisher.settle(connection, broken, transitions.finish)
            self._hints.give(settled.hints)
        return made

    async def _learn(self, claimed: Sequence[Claimed]) -> None:
        """Know the classes of what was claimed: as a retry changed them, not as in the job."""
        wanted = {row.placement_id for row in claimed}
        if any(self._classes.get(one) is None for one in wanted):
            async with self._database.transaction() as connection:
                await self._classes.learn(connection, wanted)

    def _template(self, version: JobVersion, node: str | None) -> _AssignmentTemplate:
        key = (version.job_id, version.version, node)
        template = self._moulds.get(key)
        if template is None:
            if len(self._moulds) >= _MOST_MOULDS:
                self._moulds.clear()
            template = self._moulds[key] = _AssignmentTemplate.of(version)
        return template


@dataclass(frozen=True, slots=True)
class _AssignmentTemplate:
    """What all assignments of a job version share, worked out once."""

    version: JobVersion
    # None: it has to be rendered for each.
    run: m.RunSpec | None
    timeout_ms: int | None
    kill_grace_ms: int
    on_lost: str

    @classmethod
    def of(cls, version: JobVersion) -> Self:
        return cls(
            version,
            version.plain_run(),
            _milliseconds(version.timeout),
            version.kill_grace // timedelta(milliseconds=1),
            version.on_lost,
        )


def _rendered(version: JobVersion, row: Claimed) -> m.RunSpec:
    return version.render(
        row.params or {},
        task_id=row.task_id,
        attempt=row.attempt,
        fire_at=row.fire_at,
        seen=row.flow_context,
    )


def _assignment(
    row: Claimed, template: _AssignmentTemplate, run: m.RunSpec, resources: Resources, probes: ProbePair
) -> m.Assignment:
    version = template.version
    # By place: names would take half as long again, for every row.
    return m.Assignment(
        row.id,
        row.task_id,
        row.token,
        row.claim_no,
        version.namespace,
        version.name,
        row.job_version,
        row.attempt,
        _instant(row.fire_at),
        # Cut up, not down: an agent starts at the instant and never before.
        _instant(row.due_at + _ALMOST_A_MILLISECOND),
        _instant(row.reserved_until),
        run,
        template.timeout_ms,
        template.kill_grace_ms,
        row.lease_ms,
        template.on_lost,
        row.traceparent,
        resources,
        version.spec.labels,
        row.slot,
        probes.liveness,
        probes.readiness,
    )


# Rows that were made or claimed together have their times in common.
_instant = lru_cache(maxsize=1_024)(ids.milliseconds)


def _broken(row: Claimed, error: Invalid) -> Ending:
    faults = "; ".join(map(str, error.faults))
    message = f"{error.message} {faults}".strip()
    log.warning("A claimed instance cannot be rendered.", instance=str(row.id), detail=message)
    return Ending(row.id, row.token, InstanceStatus.FAILED, reason="template_error", message=message)


def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // timedelta(milliseconds=1)
