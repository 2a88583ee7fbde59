"""The services of a server on a database of their own, without HTTP: what a claim and a finish cost there.

The claim is the dispatcher's (backlog, fair shares, matching, reserving) for the poll of one agent. The
finish is the finisher's: the statements and the Python around them are those of a running server.
"""

from __future__ import annotations

import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID, uuid4

from bench.figure import Aim, BenchFailed, Context, Limit, Line
from bench.samples import percentile
from hetuflow_core.access.roles import Role
from hetuflow_core.placement import AgentFacts
from hetuflow_core.resources.tasks import RunRequest
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.config.loading import load_settings
from hetuflow_core.states import InstanceStatus
from hetuflow_server.app.direct_database import open_database
from hetuflow_server.app.services import Services
from hetuflow_server.postgres.database import Lane
from hetuflow_server.queue.rows import Ending
from hetuflow_server.queue.waiting_polls import WaitingPoll
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.settings import ServerSettings

# Rows at a time → how often within a repetition.
_TIMES = {1: 40, 100: 10}
_AT_ONCE = 500
_WHO = RequestContext.internal(Principal.with_role("bench", Role.ADMIN))
# The namespace every database begins with.
DEFAULT_NAMESPACE = 1


@dataclass(slots=True)
class Scene:
    what: str
    url: str
    services: Services
    job: UUID
    agent: AgentFacts
    # Nothing was ever put into its database.
    is_new: bool = True
    # (verb, rows at a time) → milliseconds, one for each repetition.
    costs: dict[tuple[str, int], list[float]] = field(default_factory=dict)

    async def warm_up(self) -> None:
        for rows in _TIMES:
            await self._time(rows, 8)

    async def measure(self) -> None:
        for rows, times in _TIMES.items():
            claims, finishes = await self._time(rows, times)
            self.costs.setdefault(("claim", rows), []).append(percentile(claims, 50))
            self.costs.setdefault(("finish", rows), []).append(percentile(finishes, 50))

    async def come_and_go(self, instances: int) -> None:
        """Let so many be claimed and finished, untimed."""
        await self._time(_AT_ONCE, instances // _AT_ONCE)

    def lines(self, beside: Scene, aim: Aim, finish_aim: Aim | None = None) -> list[Line]:
        return [
            Line(
                f"{verb} {rows}, {self.what}",
                "ms",
                costs,
                Limit(f"{verb} {rows}, {beside.what}", beside.costs[verb, rows]),
                aim if verb == "claim" else finish_aim or aim,
            )
            for (verb, rows), costs in self.costs.items()
        ]

    async def _time(self, rows: int, times: int) -> tuple[list[float], list[float]]:
        """Milliseconds of each claim and of each finish."""
        claims, finishes = [], []
        for _ in range(times):
            await self.services.task_actions.run(_WHO, self.job, [RunRequest()] * rows)
            began = time.perf_counter()
            async with self.services.dispatcher.assignment(self._waiting_poll(rows), 10) as claimed:
                claimed_at = time.perf_counter()
            endings = [
                Ending(instance.id, instance.token, InstanceStatus.SUCCEEDED, exit_code=0)
                for instance in claimed
            ]
            async with self.services.database.transaction(lane=Lane.PLANNED) as connection:
                settled = await self.services.finisher.succeed(connection, endings)
            finished_at = time.perf_counter()
            if len(settled.ended) != rows:
                raise BenchFailed(f"{len(settled.ended)} of {rows} instances were claimed and finished.")
            claims.append((claimed_at - began) * 1_000)
            finishes.append((finished_at - claimed_at) * 1_000)
        return claims, finishes

    def _waiting_poll(self, rows: int) -> WaitingPoll:
        return WaitingPoll(
            self.agent,
            uuid4(),
            uuid4(),
            frozenset({DEFAULT_NAMESPACE}),
            free=rows,
            slots=self.agent.slots,
            prefetch=timedelta(0),
            repeated=False,
        )


@asynccontextmanager
async def scene(context: Context, what: str, name: str, *, keep: bool = False) -> AsyncIterator[Scene]:
    """Give a scene on a new database; whoever opens it fills that as the scene wants.

    One that is kept is found as it was left by whoever asks for the same name later.
    """
    left = context.system.databases.get(name)
    url = left or context.system.migrated_database(name)
    environment = {
        "HETUFLOW_DATABASE__URL": url,
        "HETUFLOW_DATABASE__STATEMENT_TIMEOUT": "10m",
        "HETUFLOW_SERVER__SECRET_KEY": "only-for-this-run-" * 3,
    }
    settings = load_settings(ServerSettings, env=environment, cwd=context.system.folder)
    services = Services(settings, open_database(settings.database), SystemClock())
    await services.database.start()
    await services.dispatcher.start()
    try:
        document = {"kind": "job", "name": "bench", "run": {"command": ["true"]}}
        await services.document_applier.apply(_WHO, [document], dry_run=False)
        jobs, _ = await services.document_applier.list_jobs(
            _WHO, namespace="default", name="bench", after=None, limit=1, cap=1
        )
        agent = AgentFacts(agent_id=uuid4(), version=1, slots=1_000, executors=frozenset({"command"}))
        yield Scene(what, url, services, jobs[0].id, agent, is_new=left is None)
    finally:
        await services.dispatcher.stop()
        await services.database.stop()
        if not keep:
            context.system.drop_database(name)


async def measure_in_turns(context: Context, name: str, scenes: list[Scene]) -> None:
    for one in scenes:
        await one.warm_up()
    for repetition in range(context.pace.repetitions):
        context.say(f"{name}, repetition {repetition + 1}")
        for one in scenes:
            await one.measure()
