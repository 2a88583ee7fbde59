"""Reports: heartbeats renew, starts commit, finishes end; each entry is answered on its own."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from datetime import datetime, timedelta
from uuid import UUID

import msgspec

from hetuflow_core import ids, messages as m
from hetuflow_core.errors import Invalid
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.states import INSTANCE_TERMINAL, InstanceStatus
from hetuflow_server.services.access import AgentCredential
from hetuflow_server.services.agent_sessions import AgentSessions
from hetuflow_server.services.settling import Settler
from hetuflow_server.store import queue, tasks as task_store, transitions
from hetuflow_server.store.database import Database
from hetuflow_server.store.transitions import Ending
from hetuflow_server.stream.hints import Hints, namespace_topic

MOST_REPORTS = 200
Outcomes = dict[UUID, m.ReportOutcome]


class Reporting:
    def __init__(
        self,
        database: Database,
        hints: Hints,
        sessions: AgentSessions,
        settler: Settler,
        clock: Clock,
    ) -> None:
        self._database = database
        self._hints = hints
        self._sessions = sessions
        self._settler = settler
        self._clock = clock

    async def heartbeat(self, credential: AgentCredential, asked: m.Heartbeat) -> m.HeartbeatKept:
        await self._sessions.current(credential, asked.session_id)
        held = sorted((one.instance_id, one.token) for one in asked.held)
        async with self._database.transaction() as connection:
            kept = await queue.renew(connection, held, transitions.RESERVATION) if held else []
        return m.HeartbeatKept(
            server_time=ids.milliseconds(self._clock.now()),
            kept=[claim.id for claim in kept],
            cancels=[m.Cancel(claim.id, claim.token) for claim in kept if claim.cancel_requested],
        )

    async def report(self, credential: AgentCredential, asked: m.Reports) -> m.ReportsTaken:
        if len(asked.reports) > MOST_REPORTS:
            raise Invalid(f"A batch holds at most {MOST_REPORTS} reports.")
        session = await self._sessions.current(credential, asked.session_id)
        started = await self._start([r for r in asked.reports if isinstance(r, m.Start)])
        released = await self._release(
            [r for r in asked.reports if isinstance(r, m.Release)],
            credential,
        )
        finished = await self._finish([r for r in asked.reports if isinstance(r, m.Finish)], session.id)
        by_kind: dict[type, Outcomes] = {m.Start: started, m.Release: released, m.Finish: finished}
        results = [m.ReportResult(r.instance_id, by_kind[type(r)][r.instance_id]) for r in asked.reports]
        return m.ReportsTaken(ids.milliseconds(self._clock.now()), results)

    async def _start(self, reports: Sequence[m.Start]) -> Outcomes:
        """Commit reservations; a start said twice is the same start, a cancelled one ends here."""
        if not reports:
            return {}
        held = sorted((r.instance_id, r.token) for r in reports)
        async with self._database.transaction() as connection:
            started = await transitions.start(connection, held)
            others = [(id_, token) for id_, token in held if id_ not in started]
            kept = await queue.look_up(connection, others) if others else []
        outcomes = dict.fromkeys((id_ for id_, _ in held), m.ReportOutcome.STALE)
        outcomes |= dict.fromkeys(started, m.ReportOutcome.OK)
        outcomes |= {
            claim.id: m.ReportOutcome.OK for claim in kept if claim.running and not claim.cancel_requested
        }
        cancelled = [Ending(c.id, c.token, InstanceStatus.CANCELLED) for c in kept if c.cancel_requested]
        if cancelled:
            async with self._database.transaction() as connection:
                settled = await self._settler.settle(connection, cancelled, transitions.finish)
            self._hints.give(settled.hints)
            outcomes |= dict.fromkeys(settled.ended, m.ReportOutcome.CANCELLED)
        return outcomes

    async def _release(self, reports: Sequence[m.Release], credential: AgentCredential) -> Outcomes:
        if not reports:
            return {}
        async with self._database.transaction() as connection:
            released = await transitions.release(
                connection,
                sorted((r.instance_id, r.token) for r in reports),
            )
        self._hints.give(map(namespace_topic, credential.namespaces.values()))
        return {
            r.instance_id: m.ReportOutcome.OK if r.instance_id in released else m.ReportOutcome.STALE
            for r in reports
        }

    async def _finish(self, reports: Sequence[m.Finish], agent_id: UUID) -> Outcomes:
        """End claims. One told before with the same token is told again; any other comes too late."""
        if not reports:
            return {}
        for report in reports:
            if report.status not in INSTANCE_TERMINAL:
                raise Invalid(f"An instance cannot finish as {report.status.value}.")
        async with self._database.transaction() as connection:
            settled = await self._settler.settle(connection, list(map(_ending, reports)), transitions.finish)
            rest = [report for report in reports if report.instance_id not in settled.ended]
            stored = await task_store.stored_tokens(connection, [report.instance_id for report in rest])
            late = [report for report in rest if stored.get(report.instance_id) != report.token]
            await task_store.keep_late_reports(connection, agent_id, list(map(self._late, late)))
        self._hints.give(settled.hints)
        stale = {report.instance_id for report in late}
        return {
            r.instance_id: m.ReportOutcome.STALE if r.instance_id in stale else m.ReportOutcome.OK
            for r in reports
        }

    def _late(self, report: m.Finish) -> tuple[UUID, UUID, UUID, str]:
        new = ids.new_id(self._clock.now(), secrets.token_bytes(10))
        return new, report.instance_id, report.token, msgspec.json.encode(report).decode()


def _ending(report: m.Finish) -> Ending:
    return Ending(
        report.instance_id,
        report.token,
        report.status,
        exit_code=report.exit_code,
        signal=report.signal,
        reason=report.reason,
        message=report.message,
        started_at=_instant(report.started_at),
        finished_at=_instant(report.finished_at),
    )


def _instant(milliseconds: int | None) -> datetime | None:
    return None if milliseconds is None else ids.EPOCH + timedelta(milliseconds=milliseconds)
