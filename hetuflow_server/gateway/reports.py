"""Reports: heartbeats renew, starts commit, finishes end; each entry is answered on its own."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core import ids, messages as m
from hetuflow_core.errors import Invalid
from hetuflow_core.runtime.clock import Clock
from hetuflow_core.states import INSTANCE_TERMINAL, InstanceStatus
from hetuflow_server.agents.command_delivery import CommandDelivery
from hetuflow_server.agents.sessions import AgentSessions
from hetuflow_server.cluster.hints import Hints, daemons_topic
from hetuflow_server.daemons import transitions as daemon_transitions
from hetuflow_server.daemons.transitions import ReadinessNote
from hetuflow_server.flows import store as flow_store
from hetuflow_server.identity.access import AgentCredential
from hetuflow_server.postgres.coalescing import Coalescer
from hetuflow_server.postgres.database import Connection, Database, Lane
from hetuflow_server.postgres.faults import deadlocked
from hetuflow_server.postgres.nul_text import NUL_IN_JSON, without_nul
from hetuflow_server.queue import (
    claim_transitions,
    late_reports_store,
    store as queue_store,
    tasks_store as task_store,
    transitions,
)
from hetuflow_server.queue.finish import Finisher
from hetuflow_server.queue.late_reports_store import LateReport
from hetuflow_server.queue.rows import Ending, ProgressNote

MOST_REPORTS = 200
# Of all requests that share a transaction: the more do, the less the processors wait for each other.
_MOST_SHARED = 500
_WHOLE = 100
# Of the year 9999: the last one everybody can write.
_LAST_MILLISECOND = 253_402_300_799_999
_LONGEST_PROGRESS = 200
# A little more than agents let through: JSON writes some characters longer than the task did.
_MOST_OUTPUT = 512 * 1024
_OK = m.ReportOutcome.OK
# In the order of the reports.
Outcomes = list[m.ReportOutcome]
# Who says so, and what.
AgentFinish = tuple[UUID, m.Finish]
AgentFinishes = tuple[UUID, Sequence[m.Finish]]


class Reports:
    def __init__(
        self,
        database: Database,
        hints: Hints,
        sessions: AgentSessions,
        command_delivery: CommandDelivery,
        finisher: Finisher,
        clock: Clock,
    ) -> None:
        self._database = database
        self._hints = hints
        self._sessions = sessions
        self._command_delivery = command_delivery
        self._finisher = finisher
        self._clock = clock
        # Reports of all agents that come in while a transaction is under way share the next one.
        self._starting = Coalescer("start", self._start, most=_MOST_SHARED, weigh=len, again=deadlocked)
        self._finishing = Coalescer(
            "finish", self._finish, most=_MOST_SHARED, weigh=lambda one: len(one[1]), again=deadlocked
        )

    async def heartbeat(self, credential: AgentCredential, asked: m.Heartbeat) -> m.HeartbeatKept:
        session = await self._sessions.current(credential, asked.session_id)
        _check_progress(asked.progress)
        held = sorted((one.instance_id, one.token) for one in asked.held)
        async with self._database.single(lane=Lane.PLANNED) as connection:
            kept = await queue_store.renew(connection, held, claim_transitions.RESERVATION) if held else []
            if asked.progress:
                await queue_store.note_progress(connection, [_noted(one) for one in asked.progress])
            notes = [ReadinessNote(one.instance_id, one.token, one.ready) for one in asked.readiness]
            news = await daemon_transitions.note_readiness(connection, notes) if notes else ()
        self._hints.give([daemons_topic(namespace_id) for namespace_id in news])
        if asked.host is not None:
            self._sessions.note_host(session.id, asked.host)
        return m.HeartbeatKept(
            server_time=ids.milliseconds(self._clock.now()),
            kept=[claim.id for claim in kept],
            cancels=[m.Cancel(claim.id, claim.token) for claim in kept if claim.cancel_requested],
            commands=await self._command_delivery.commands(session.id),
        )

    async def report(self, credential: AgentCredential, asked: m.Reports) -> m.ReportsTaken:
        if len(asked.reports) > MOST_REPORTS:
            raise Invalid(f"A batch holds at most {MOST_REPORTS} reports.")
        session = await self._sessions.current(credential, asked.session_id)
        outcomes = await self._outcomes(session.id, asked.reports)
        results = [
            m.ReportResult(r.instance_id, outcome) for r, outcome in zip(asked.reports, outcomes, strict=True)
        ]
        return m.ReportsTaken(ids.milliseconds(self._clock.now()), results)

    async def _outcomes(self, agent_id: UUID, reports: Sequence[m.Start | m.Finish | m.Release]) -> Outcomes:
        """Take reports; starts and ends do not wait for each other, unless they are about the same."""
        by_kind: dict[type, list[Any]] = {m.Start: [], m.Release: [], m.Finish: []}
        for report in reports:
            by_kind[type(report)].append(report)
        starts, releases, finishes = by_kind.values()
        _check(finishes)
        finishes = [_storable(finish) for finish in finishes]
        ending = (agent_id, finishes)
        if starts and len(starts) == len(reports):
            return await self._starting.ask(starts)
        if finishes and len(finishes) == len(reports):
            return await self._finishing.ask(ending)
        released: Outcomes = []
        if starts and finishes and not releases and _apart(starts, finishes):
            started, ended = await asyncio.gather(self._starting.ask(starts), self._finishing.ask(ending))
        else:
            started = await self._starting.ask(starts) if starts else []
            released = await self._release(releases) if releases else []
            ended = await self._finishing.ask(ending) if finishes else []
        answers = {m.Start: iter(started), m.Release: iter(released), m.Finish: iter(ended)}
        return [next(answers[type(report)]) for report in reports]

    async def _start(self, batches: Sequence[Sequence[m.Start]]) -> list[Outcomes]:
        """Commit reservations; a start said twice is the same start, a cancelled one ends here."""
        held = sorted(
            [(r.instance_id, r.token) for batch in batches for r in batch], key=lambda one: one[0].int
        )
        async with self._database.single(lane=Lane.PLANNED) as connection:
            started = await transitions.start(connection, held)
            if len(started) == len(held):
                return [[_OK] * len(batch) for batch in batches]
            kept = await queue_store.look_up(connection, held)
        outcomes = dict.fromkeys(held, m.ReportOutcome.STALE)
        cancelled = [c for c in kept if c.cancel_requested and c.id not in started]
        going = [c for c in kept if c.id in started or (c.running and not c.cancel_requested)]
        outcomes |= {(c.id, c.token): _OK for c in going}
        if cancelled:
            endings = [Ending(c.id, c.token, InstanceStatus.CANCELLED) for c in cancelled]
            async with self._database.transaction() as connection:
                settled = await self._finisher.settle(connection, endings, transitions.finish)
            self._hints.give(settled.hints)
            outcomes |= {
                (c.id, c.token): m.ReportOutcome.CANCELLED for c in cancelled if c.id in settled.ended
            }
        return [[outcomes[r.instance_id, r.token] for r in batch] for batch in batches]

    async def _release(self, reports: Sequence[m.Release]) -> Outcomes:
        """Give claims back. An instance named with several tokens has a turn for each: one may be right."""
        released: set[tuple[UUID, UUID]] = set()
        left = {(report.instance_id, report.token) for report in reports}
        while left:
            held = sorted(dict(left).items())
            async with self._database.transaction() as connection:
                settled = await self._finisher.release(connection, held)
            self._hints.give(settled.hints)
            released |= {one for one in held if one[0] in settled.ended}
            left.difference_update(held)
        return [_OK if (r.instance_id, r.token) in released else m.ReportOutcome.STALE for r in reports]

    async def _finish(self, batches: Sequence[AgentFinishes]) -> list[Outcomes]:
        """End claims. One told before with the same token is told again; any other comes too late."""
        reports = [(agent, report) for agent, batch in batches for report in batch]
        ended = await self._succeed([r for _, r in reports if r.status is InstanceStatus.SUCCEEDED])
        if len(ended) == len(reports):
            return [[_OK] * len(batch) for _, batch in batches]
        contested = _contested(reports)
        rest = [one for one in reports if one[1].instance_id in contested or one[1].instance_id not in ended]
        stale = await self._end_apart(rest) if rest else set()
        return [
            [m.ReportOutcome.STALE if (r.instance_id, r.token) in stale else _OK for r in batch]
            for _, batch in batches
        ]

    async def _succeed(self, reports: Sequence[m.Finish]) -> set[UUID]:
        """End what can be ended without a question: most of it, one row after the other."""
        if not reports:
            return set()
        async with self._database.transaction(lane=Lane.PLANNED) as connection:
            settled = await self._finisher.succeed(connection, [_ending(report) for report in reports])
        self._hints.give(settled.hints)
        self._hints.give_ended(settled.ended)
        return settled.ended

    async def _end_apart(self, reports: Sequence[AgentFinish]) -> set[tuple[UUID, UUID]]:
        """End everything else, nodes of flows apart from the rest: they wait for each other's runs."""
        async with self._database.single(lane=Lane.PLANNED) as connection:
            nodes = await flow_store.in_flows(connection, [report.instance_id for _, report in reports])
        stale: set[tuple[UUID, UUID]] = set()
        for some in (
            [one for one in reports if one[1].instance_id not in nodes],
            [one for one in reports if one[1].instance_id in nodes],
        ):
            if some:
                stale |= await self._end(some)
        return stale

    async def _end(self, reports: Sequence[AgentFinish]) -> set[tuple[UUID, UUID]]:
        """End claims, and return what came too late."""
        async with self._database.transaction(lane=Lane.PLANNED) as connection:
            endings = [_ending(report) for _, report in reports]
            settled = await self._finisher.settle(connection, endings, transitions.finish)
            ended = settled.ended - _contested(reports)
            late = [one for one in reports if one[1].instance_id not in ended]
            stale = await self._keep_late(connection, late) if late else set()
        self._hints.give(settled.hints)
        return stale

    async def _keep_late(
        self,
        connection: Connection,
        reports: Sequence[AgentFinish],
    ) -> set[tuple[UUID, UUID]]:
        """Keep and return what came too late to count; what was told before under its token did not."""
        stored = await task_store.stored_tokens(connection, [report.instance_id for _, report in reports])
        late = [(agent, r) for agent, r in reports if stored.get(r.instance_id) != r.token]
        if late:
            await late_reports_store.keep(connection, [_late(agent, report) for agent, report in late])
        return {(report.instance_id, report.token) for _, report in late}


def _contested(reports: Iterable[AgentFinish]) -> set[UUID]:
    """Named with several tokens, only one of which can be right: which one has to be looked up."""
    named = Counter(id_ for id_, _ in {(report.instance_id, report.token) for _, report in reports})
    return {id_ for id_, tokens in named.items() if tokens > 1}


def _apart(starts: Iterable[m.Start], finishes: Iterable[m.Finish]) -> bool:
    """Whether nothing is said to have begun and ended at once: that has to be taken in this order."""
    return {start.instance_id for start in starts}.isdisjoint(finish.instance_id for finish in finishes)


def _check_progress(progress: Sequence[m.Progress]) -> None:
    for one in progress:
        if not 0 <= one.percent <= _WHOLE or len(one.message) > _LONGEST_PROGRESS or "\0" in one.message:
            raise Invalid(f"Progress is 0 to {_WHOLE} with up to {_LONGEST_PROGRESS} characters of text.")


def _noted(one: m.Progress) -> ProgressNote:
    said = {"percent": one.percent, "message": one.message}
    return ProgressNote(one.instance_id, one.token, msgspec.json.encode(said).decode())


def _check(reports: Sequence[m.Finish]) -> None:
    for report in reports:
        if report.output is not None:
            encoded = msgspec.json.encode(report.output)
            if len(encoded) > _MOST_OUTPUT:
                raise Invalid(f"An output has at most {_MOST_OUTPUT} bytes.")
            if NUL_IN_JSON.search(encoded):
                raise Invalid("An output holds no NUL character.")
        if report.status not in INSTANCE_TERMINAL:
            raise Invalid(f"An instance cannot finish as {report.status.value}.")
        for said in (report.started_at, report.finished_at):
            if said is not None and not 0 <= said <= _LAST_MILLISECOND:
                raise Invalid(f"{said} is no time: times are milliseconds since 1970.")


def _storable(report: m.Finish) -> m.Finish:
    """Whatever a task says of its end, it has ended: what PostgreSQL does not store is made visible."""
    if report.reason is None and report.message is None:
        return report
    if "\0" not in f"{report.reason}{report.message}":
        return report
    return msgspec.structs.replace(
        report, reason=without_nul(report.reason), message=without_nul(report.message)
    )


def _ending(report: m.Finish) -> Ending:
    return Ending(
        report.instance_id,
        report.token,
        report.status,
        report.exit_code,
        report.signal,
        report.reason,
        report.message,
        report.started_at,
        report.finished_at,
        _json(report.output),
        _json(report.usage),
        report.oom,
    )


def _late(agent_id: UUID, report: m.Finish) -> LateReport:
    said = msgspec.json.encode(report)
    id_ = ids.late_report(report.instance_id, said)
    return LateReport(id_, agent_id, report.instance_id, report.token, said.decode())


def _json(value: Any) -> str | None:
    return None if value is None else msgspec.json.encode(value).decode()
