"""Continues the claims of an earlier process of this agent: work at the keeper, and unreported results.

Before the agent registers, all recorded claims are held, so that the registration can name them. After that
each claim continues at the step it had reached: commands at the keeper are watched again, work that the
keeper never received is started if the server still accepts the start, and results are reported.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from uuid import UUID

import structlog

from hetuflow_agent.attempt.classify import FAILURES
from hetuflow_agent.attempt.dependencies import AttemptDependencies
from hetuflow_agent.attempt.runner import Runner
from hetuflow_agent.attempt.secrets import TaskSecrets, given_versions
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.gateway import Session
from hetuflow_agent.processes.processes import Child
from hetuflow_agent.records.outbox import JournalEntry
from hetuflow_core.messages import Finish
from hetuflow_core.states import InstanceStatus

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.recovery")


@dataclass(frozen=True, slots=True)
class Unfinished:
    """A claim without a result; without a child, its start is committed again."""

    entry: JournalEntry
    folder: ClaimDirectory
    child: Child | None


class Recovery:
    """Runs once, before the agent registers."""

    name = "recovery"

    def __init__(self, dependencies: AttemptDependencies) -> None:
        self._dependencies = dependencies
        self.unfinished: list[Unfinished] = []
        # Logs that are not shipped before their secrets are fetched again.
        self.needs_secrets: list[tuple[UUID, UUID, ClaimDirectory]] = []

    async def start(self) -> None:
        kept = await self._recover_claims()
        kept |= await self._recover_results()
        await asyncio.to_thread(self._dependencies.data.remove_strays, kept)
        abandoned = self._dependencies.processes.abandon_unclaimed()
        if abandoned:
            log.warning("ended commands of the keeper without a record", tasks=abandoned)

    async def stop(self) -> None:
        pass

    async def _recover_claims(self) -> set[str]:
        """Hold every claim without a result; return the names of their work folders."""
        dependencies, kept = self._dependencies, set()
        for entry in await dependencies.outbox.journal():
            assignment = entry.assignment
            kept.add(entry.directory)
            if entry.started:
                await dependencies.outbox.put(self._lost(entry), entry.directory)
                continue
            child = dependencies.processes.adopt(assignment.token)
            dependencies.claims.hold(assignment.instance_id, assignment.token, assignment.lease_ms / 1000)
            directory = ClaimDirectory(dependencies.data.instances / entry.directory)
            self._follow(
                assignment.instance_id,
                assignment.token,
                directory,
                secret=bool(assignment.run.secrets),
                rolling=assignment.slot is not None,
            )
            self.unfinished.append(Unfinished(entry, directory, child))
        return kept

    async def _recover_results(self) -> set[str]:
        """Report recorded results and ship their logs; return the names of their work folders."""
        dependencies, kept = self._dependencies, set()
        for found in await dependencies.outbox.finished():
            finish = found.finish
            kept.add(found.directory)
            if dependencies.processes.adopt(finish.token) is not None:
                dependencies.processes.forget(finish.token)
            directory = ClaimDirectory(dependencies.data.instances / found.directory)
            self._follow(finish.instance_id, finish.token, directory)
            dependencies.shipper.close(finish.token, failed=finish.status in FAILURES)
            if found.taken:
                await dependencies.shipper.taken([finish.token])
            else:
                dependencies.claims.hold(finish.instance_id, finish.token)
                dependencies.reporter.submit(finish)
        return kept

    def _follow(
        self,
        instance_id: UUID,
        token: UUID,
        directory: ClaimDirectory,
        *,
        secret: bool = False,
        rolling: bool = False,
    ) -> None:
        """Follow a log; one with secrets is not shipped before they are fetched again."""
        given = given_versions(directory) is not None
        self._dependencies.shipper.follow(
            instance_id, token, directory, needs_secrets=secret or given, rolling=rolling
        )
        if given:
            self.needs_secrets.append((instance_id, token, directory))

    def _lost(self, entry: JournalEntry) -> Finish:
        """The result of work that ran inside the former process of the agent."""
        return Finish(
            instance_id=entry.assignment.instance_id,
            token=entry.assignment.token,
            status=InstanceStatus.LOST,
            finished_at=self._dependencies.server_clock.now_ms(),
            reason="agent_restarted",
        )


class Readoption:
    """Runs once, after the registration, in which the server named the claims that this agent still has."""

    name = "readoption"

    def __init__(
        self, recovery: Recovery, session: Session, runner: Runner, secrets: TaskSecrets | None = None
    ) -> None:
        self._secrets = secrets
        self._recovery = recovery
        self._session = session
        self._runner = runner

    async def start(self) -> None:
        unfinished, self._recovery.unfinished = self._recovery.unfinished, []
        needs_secrets, self._recovery.needs_secrets = self._recovery.needs_secrets, []
        if self._secrets is not None:
            for instance_id, token, directory in needs_secrets:
                self._secrets.fetch_again(instance_id, token, directory)
        for found in unfinished:
            assignment = found.entry.assignment
            wanted = found.child is None or found.child.exit.done() or self._is_ours(found)
            self._runner.resume(assignment, found.folder, found.child, wanted=wanted)
        adopted = sum(1 for found in unfinished if found.child is not None)
        if unfinished:
            log.info("resumed claims of an earlier agent process", claims=len(unfinished), adopted=adopted)

    async def stop(self) -> None:
        pass

    def _is_ours(self, found: Unfinished) -> bool:
        return found.entry.assignment.instance_id in self._session.adopted
