"""What an earlier life of this agent has left: processes without a watcher, results without an answer.

Nobody was there to see how its processes end, so those that live are ended and all of them are lost, with
reason `agent_restarted`, or `host_reboot` after one. Results that were on disk are reported as they are.
"""

from __future__ import annotations

import asyncio

import structlog

from hetuflow_agent.executors.environment import marker_of
from hetuflow_agent.keeper.leftovers import Leftover, end_leftovers
from hetuflow_agent.keeper.proc import Identity, boot_id
from hetuflow_agent.logs.shipper import LogShipper
from hetuflow_agent.outbox import JournalEntry, Outbox
from hetuflow_agent.runner.attempt import ReportDesk
from hetuflow_agent.runner.claims import Claims
from hetuflow_agent.server_clock import ServerClock
from hetuflow_agent.workdir import ClaimDirectory, DataDirectory
from hetuflow_core.messages import Finish
from hetuflow_core.states import InstanceStatus

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.recovery")


class Recovery:
    """Runs once, before the agent registers, so that the registration can name what is yet to be reported."""

    name = "recovery"

    def __init__(
        self,
        data: DataDirectory,
        outbox: Outbox,
        *,
        claims: Claims,
        shipper: LogShipper,
        desk: ReportDesk,
        server_clock: ServerClock,
    ) -> None:
        self._data = data
        self._outbox = outbox
        self._claims = claims
        self._shipper = shipper
        self._desk = desk
        self._server_clock = server_clock

    async def start(self) -> None:
        await self._end_orphans()
        kept = await self._take_up_results()
        strays = await asyncio.to_thread(self._data.strays, kept)
        for stray in strays:
            await asyncio.to_thread(stray.remove)

    async def stop(self) -> None:
        pass

    async def _end_orphans(self) -> None:
        entries = await self._outbox.journal()
        if not entries:
            return
        leftovers = [Leftover(_identity(entry), marker_of(entry.instance_id)) for entry in entries]
        ended = await asyncio.to_thread(end_leftovers, leftovers)
        log.warning("Work of an earlier agent process is lost.", claims=len(entries), processes_ended=ended)
        for entry in entries:
            await self._outbox.put(self._lost(entry), entry.directory)

    async def _take_up_results(self) -> set[str]:
        """Have everything on record reported and shipped; the names of the folders that takes."""
        kept = set()
        for found in await self._outbox.finished():
            finish = found.finish
            kept.add(found.directory)
            directory = ClaimDirectory(self._data.instances / found.directory)
            self._shipper.follow(finish.instance_id, finish.token, directory)
            self._shipper.close(finish.token)
            if found.taken:
                await self._shipper.taken([finish.token])
            else:
                self._claims.hold(finish.instance_id, finish.token)
                self._desk.submit(finish)
        return kept

    def _lost(self, entry: JournalEntry) -> Finish:
        rebooted = entry.boot_id is not None and entry.boot_id != boot_id()
        return Finish(
            instance_id=entry.instance_id,
            token=entry.token,
            status=InstanceStatus.LOST,
            started_at=entry.started_at,
            finished_at=self._server_clock.now_ms(),
            reason="host_reboot" if rebooted else "agent_restarted",
        )


def _identity(entry: JournalEntry) -> Identity | None:
    if entry.pid is None or entry.start_ticks is None or entry.boot_id is None:
        return None
    return Identity(entry.pid, entry.start_ticks, entry.boot_id)
