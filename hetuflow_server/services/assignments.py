"""From a claimed row to everything an agent needs to run it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta

import structlog

from hetuflow_core import ids, messages as m
from hetuflow_core.errors import Invalid
from hetuflow_core.placement import Resources
from hetuflow_core.states import InstanceStatus
from hetuflow_server.services.daemon_probes import NO_PROBES, DaemonProbes
from hetuflow_server.services.job_versions import JobVersions
from hetuflow_server.services.placement_classes import PlacementClasses
from hetuflow_server.services.settling import Settler
from hetuflow_server.store import transitions
from hetuflow_server.store.database import Database
from hetuflow_server.store.records import Claimed, Ending
from hetuflow_server.stream.hints import Hints

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.claims")

_ALMOST_A_MILLISECOND = timedelta(microseconds=999)


class Assignments:
    def __init__(
        self,
        database: Database,
        versions: JobVersions,
        classes: PlacementClasses,
        settler: Settler,
        hints: Hints,
    ) -> None:
        self._database = database
        self._versions = versions
        self._classes = classes
        self._settler = settler
        self._hints = hints
        self._probes = DaemonProbes(database)

    async def make(self, claimed: Sequence[Claimed]) -> list[m.Assignment]:
        """Render what was claimed; what cannot be rendered ends here as failed, with the reason."""
        if not claimed:
            return []
        resources = await self._resources(claimed)
        probes = await self._probes.of(claimed)
        made, broken = [], []
        for row in claimed:
            node = row.flow_node if row.flow_context is not None else None
            version = await self._versions.find(self._database, row.job_id, row.job_version, node)
            try:
                run = version.render(
                    row.params or {},
                    task_id=row.task_id,
                    attempt=row.attempt,
                    fire_at=row.fire_at,
                    seen=row.flow_context,
                )
            except Invalid as error:
                broken.append(_broken(row, error))
                continue
            made.append(
                m.Assignment(
                    instance_id=row.id,
                    task_id=row.task_id,
                    token=row.token,
                    claim_no=row.claim_no,
                    namespace=version.namespace,
                    job=version.name,
                    job_version=row.job_version,
                    attempt=row.attempt,
                    fire_at=ids.milliseconds(row.fire_at),
                    # Cut up, not down: an agent starts at the instant and never before.
                    due_at=ids.milliseconds(row.due_at + _ALMOST_A_MILLISECOND),
                    reserved_until=ids.milliseconds(row.reserved_until),
                    run=run,
                    timeout_ms=_milliseconds(version.timeout),
                    kill_grace_ms=version.kill_grace // timedelta(milliseconds=1),
                    lease_ms=row.lease_ms,
                    on_lost=version.on_lost,
                    traceparent=row.traceparent,
                    resources=resources[row.placement_id],
                    slot=row.slot,
                    liveness=probes.get(row.id, NO_PROBES).liveness,
                    readiness=probes.get(row.id, NO_PROBES).readiness,
                ),
            )
        if broken:
            async with self._database.transaction() as connection:
                settled = await self._settler.settle(connection, broken, transitions.finish)
            self._hints.give(settled.hints)
        return made

    async def _resources(self, claimed: Sequence[Claimed]) -> dict[int, Resources]:
        """Return {class: what it takes of an agent}; as it was changed by a retry, not as in the job."""
        wanted = {row.placement_id for row in claimed}
        if any(self._classes.get(one) is None for one in wanted):
            async with self._database.transaction() as connection:
                await self._classes.learn(connection, wanted)
        return {one: self._classes.of(one).resources for one in wanted}


def _broken(row: Claimed, error: Invalid) -> Ending:
    faults = "; ".join(map(str, error.faults))
    message = f"{error.message} {faults}".strip()
    log.warning("A claimed instance cannot be rendered.", instance=str(row.id), detail=message)
    return Ending(row.id, row.token, InstanceStatus.FAILED, reason="template_error", message=message)


def _milliseconds(duration: timedelta | None) -> int | None:
    return None if duration is None else duration // timedelta(milliseconds=1)
