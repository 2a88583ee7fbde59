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
from hetuflow_server.services.coalescing import Coalescer
from hetuflow_server.services.settling import Settler
from hetuflow_server.store import queue, tasks as task_store, transitions
from hetuflow_server.store.database import Connection, Database
from hetuflow_server.store.records import Ending
from hetuflow_server.stream.hints import Hints, namespace_topic

MOST_REPORTS = 200
Outcomes = dict[UUID, m.ReportOutcome]
# Who says so, and what.
AgentFinish = tuple[UUID, m.Finish]


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
        # Reports of all agents that come in while a transaction is under way share the next one.
        self._starting = Coalescer("start", self._start, most=MOST_REPORTS, weigh=len)
        self._finishing = Coalescer("finish", self._finish, most=MOST_REPORTS, weigh=len)

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
        starts = [r for r in asked.reports if isinstance(r, m.Start)]
        started = await self._starting.ask(starts) if starts else {}
        released = await self._release(
            [r for r in asked.reports if isinstance(r, m.Release)],
            credential,
        )
        finishes = [(session.id, r) for r in asked.reports if isinstance(r, m.Finish)]
        _check(finishes)
        finished = await self._finishing.ask(finishes) if finishes else {}
        by_kind: dict[type, Outcomes] = {m.Start: started, m.Release: released, m.Finish: finished}
        results = [m.ReportResult(r.instance_id, by_kind[type(r)][r.instance_id]) for r in asked.reports]
        return m.ReportsTaken(ids.milliseconds(self._clock.now()), results)

    async def _start(self, batches: Sequence[Sequence[m.Start]]) -> list[Outcomes]:
        """Commit reservations; a start said twice is the same start, a cancelled one ends here."""
        held = sorted({(r.instance_id, r.token) for batch in batches for r in batch})
        async with self._database.transaction() as connection:
            started = await transitions.start(connection, held)
            others = [(id_, token) for id_, token in held if id_ not in started]
            kept = await queue.look_up(connection, others) if others else []
        outcomes = dict.fromkeys((id_ for id_, _ in held), m.ReportOutcome.STALE)
        outcomes |= dict.fromkeys(started, m.ReportOutcome.OK)
        outcomes |= {c.id: m.ReportOutcome.OK for c in kept if c.running and not c.cancel_requested}
        cancelled = [Ending(c.id, c.token, InstanceStatus.CANCELLED) for c in kept if c.cancel_requested]
        if cancelled:
            async with self._database.transaction() as connection:
                settled = await self._settler.settle(connection, cancelled, transitions.finish)
            self._hints.give(settled.hints)
            outcomes |= dict.fromkeys(settled.ended, m.ReportOutcome.CANCELLED)
        return [{r.instance_id: outcomes[r.instance_id] for r in batch} for batch in batches]

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

    async def _finish(self, batches: Sequence[Sequence[AgentFinish]]) -> list[Outcomes]:
        """End claims. One told before with the same token is told again; any other comes too late."""
        reports = [report for batch in batches for report in batch]
        async with self._database.transaction() as connection:
            endings = [_ending(report) for _, report in reports]
            settled = await self._settler.settle(connection, endings, transitions.finish)
            rest = [one for one in reports if one[1].instance_id not in settled.ended]
            stale = await self._keep_late(connection, rest) if rest else set()
        self._hints.give(settled.hints)
        return [
            {
                r.instance_id: m.ReportOutcome.STALE
                if (r.instance_id, r.token) in stale
                else m.ReportOutcome.OK
                for _, r in batch
            }
            for batch in batches
        ]

    async def _keep_late(
        self,
        connection: Connection,
        reports: Sequence[AgentFinish],
    ) -> set[tuple[UUID, UUID]]:
        """Keep and return what came too late to count; what was told before under its token did not."""
        stored = await task_store.stored_tokens(connection, [report.instance_id for _, report in reports])
        late = [(agent, r) for agent, r in reports if stored.get(r.instance_id) != r.token]
        for agent in {agent for agent, _ in late}:
            kept = [self._late(report) for one, report in late if one == agent]
            await task_store.keep_late_reports(connection, agent, kept)
        return {(report.instance_id, report.token) for _, report in late}

    def _late(self, report: m.Finish) -> tuple[UUID, UUID, UUID, str]:
        new = ids.new_id(self._clock.now(), secrets.token_bytes(10))
        return new, report.instance_id, report.token, msgspec.json.encode(report).decode()


def _check(reports: Sequence[AgentFinish]) -> None:
    for _, report in reports:
        if report.status not in INSTANCE_TERMINAL:
            raise Invalid(f"An instance cannot finish as {report.status.value}.")


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
