"""The probes of daemons, as agents are told of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import timedelta
from uuid import UUID

from hetuflow_core import daemon, messages as m
from hetuflow_core.errors import Invalid
from hetuflow_server.daemons import store
from hetuflow_server.postgres.database import Database
from hetuflow_server.schedules.stored_specs import StoredSpecs

_MILLISECOND = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class ProbePair:
    liveness: m.Probe | None = None
    readiness: m.Probe | None = None


NO_PROBES = ProbePair()


class DaemonProbes:
    def __init__(self, database: Database) -> None:
        self._database = database
        self._specs = StoredSpecs()

    async def of(self, instances: Sequence[UUID]) -> dict[UUID, ProbePair]:
        """Return the probes of instances of daemons, by instance."""
        async with self._database.transaction() as connection:
            texts = await store.specs_of(connection, instances)
        return {id_: self._probes(text) for id_, text in texts.items()}

    def _probes(self, text: str) -> ProbePair:
        try:
            spec = self._specs.get(text).daemon
        except Invalid:
            spec = None
        return NO_PROBES if spec is None else ProbePair(_told(spec.liveness), _told(spec.readiness))


def _told(probe: daemon.ProbeSpec | None) -> m.Probe | None:
    if probe is None:
        return None
    return m.Probe(
        command=list(probe.command) if probe.command else None,
        url=probe.http.url if probe.http else None,
        host=probe.tcp.host if probe.tcp else None,
        port=probe.tcp.port if probe.tcp else None,
        interval_ms=probe.interval // _MILLISECOND,
        timeout_ms=probe.timeout // _MILLISECOND,
        failure_threshold=probe.failure_threshold,
        success_threshold=probe.success_threshold,
        initial_delay_ms=probe.initial_delay // _MILLISECOND,
    )
