"""The steps of an attempt, in the order in which `attempt.py` takes them.

A step gets the claim and the results of earlier steps as arguments and returns a result. Only
`Attempt` keeps state.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

import structlog
from msgspec import structs

from hetuflow_agent.attempt.classify import FAILURES, Ending, Verdict
from hetuflow_agent.attempt.dependencies import AttemptDependencies
from hetuflow_agent.attempt.outputs import collect_output
from hetuflow_agent.attempt.secrets import SecretFault, with_secrets
from hetuflow_agent.executors.command import CommandExecutor
from hetuflow_agent.executors.environment import marker_of, permitted_user, task_environment
from hetuflow_agent.executors.interface import Execution, Executor, Plan, SpawnFailed
from hetuflow_agent.folders.spare_folders import UNKNOWN, FolderContents, FolderFingerprint
from hetuflow_agent.folders.workdir import OUTPUT, ClaimDirectory
from hetuflow_agent.gateway import Backoff
from hetuflow_agent.keeper.fencing import KILL_AT, TERM_AT
from hetuflow_agent.logs.holes import gives_room_back
from hetuflow_agent.processes.command import Command, Exit, Instant
from hetuflow_agent.processes.processes import Child
from hetuflow_agent.records.outbox import JournalEntry
from hetuflow_core.errors import Conflict, HetuflowError, HostBlocked
from hetuflow_core.messages import Assignment, Finish, ReportOutcome
from hetuflow_core.runtime.timers import Timers

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.attempt")

# A timer may fire up to a millisecond early; the rest is slept.
_TIMER_ERROR: Final = 0.002
# Work inside the agent that is shorter than this needs no committed start.
_BRIEF: Final = 0.5
_KILL: Final = "kill"


@dataclass(slots=True)
class Claim:
    """The parts of an attempt that never change. Not frozen: making a frozen one takes four times as long."""

    assignment: Assignment
    directory: ClaimDirectory
    dependencies: AttemptDependencies

    @property
    def log(self) -> structlog.stdlib.BoundLogger:
        """Made on use: most attempts log nothing."""
        return log.bind(instance_id=str(self.assignment.instance_id), job=self.assignment.job)

    @property
    def executor(self) -> Executor | None:
        return self.dependencies.executors.get(self.assignment.run.executor or CommandExecutor.name)

    @property
    def lease(self) -> float:
        return self.assignment.lease_ms / 1000

    @property
    def bound_to_lease(self) -> bool:
        """Whether the work has to end when its lease expires."""
        return self.assignment.on_lost == _KILL

    @property
    def cwd(self) -> Path:
        workdir = self.assignment.run.workdir
        return self.directory.work if workdir is None else Path(workdir)

    def due(self) -> float:
        """The boottime at which the work is due, by the newest samples of the server's clock."""
        return self.dependencies.server_clock.boottime_reaching(self.assignment.due_at)

    def record(self, *, started: bool = False) -> JournalEntry:
        return JournalEntry(self.assignment, self.directory.name, started)

    def server_ms(self, instant: Instant | None) -> int | None:
        """The instant in milliseconds of the server's clock."""
        if instant is None:
            return None
        if instant.boottime is None:
            return int(instant.wall * 1000)
        return self.dependencies.server_clock.ms_at(instant.boottime)

    def grace(self, ending: Ending | None) -> float:
        """Seconds between TERM and KILL."""
        grace = self.assignment.kill_grace_ms / 1000
        match ending:
            case Ending.AGENT_SHUTDOWN:
                return min(grace, self.dependencies.stop_grace)
            case Ending.LEASE_LOST:
                return (KILL_AT - TERM_AT) * self.lease
        return grace


class EndRequest:
    """Why an attempt has to end, and the event that wakes the attempt for this and for other changes."""

    def __init__(self, timers: Timers) -> None:
        # The first reason counts.
        self.reason: Ending | None = None
        self.changed = asyncio.Event()
        self._timers = timers

    async def next_change(self) -> None:
        self.changed.clear()
        await self.changed.wait()

    async def until(self, deadline: float, unless: Callable[[], bool] = lambda: False) -> None:
        """Return when boottime has reached `deadline`, never before, or when the attempt has to end."""

        def over() -> bool:
            return self.reason is not None or unless()

        clock = self._timers.clock
        if over() or deadline <= clock.boottime():
            return
        alarm = self._timers.set(deadline, self.changed.set)
        try:
            while not over() and (left := deadline - clock.boottime()) > 0:
                await (asyncio.sleep(left) if left <= _TIMER_ERROR else self.next_change())
        finally:
            alarm.cancel()


async def prepare_folder(claim: Claim, *, begins_later: bool) -> FolderFingerprint:
    """Take a spare work folder or make one, and follow its log files."""
    assignment, dependencies = claim.assignment, claim.dependencies
    fingerprint = dependencies.spares.take(claim.directory)
    if fingerprint is None:
        await dependencies.data.make(claim.directory)
    dependencies.shipper.follow(
        assignment.instance_id,
        assignment.token,
        claim.directory,
        needs_secrets=bool(assignment.run.secrets),
        not_begun=begins_later,
        rolling=assignment.slot is not None,
    )
    return UNKNOWN if fingerprint is None else fingerprint


async def fetch_secrets(claim: Claim) -> dict[str, str]:
    """Values by name. They are fetched before the start, so that the work can begin at its due instant."""
    secrets = claim.dependencies.secrets
    if secrets is None:
        raise SecretFault("This agent has no server to fetch secrets from.")
    return await secrets.fetch(claim.assignment, claim.directory)


async def may_start_unconfirmed(claim: Claim, came_at: float) -> bool:
    """Whether the work may begin before its start is committed: brief work in the agent that came due."""
    executor = claim.executor
    if executor is None or executor.kept or claim.due() > came_at:
        return False
    try:
        return await executor.is_brief(claim.assignment)
    except (HetuflowError, SpawnFailed):
        return False  # the same error is reported when the work is planned


async def commit_start(claim: Claim, end: EndRequest) -> float | None:
    """Commit the start at the server; return the boottime at which the accepted request was sent.

    Return None if the server refuses the start, or if the attempt has to end. Repeat the request until the
    server answers: after a lost answer only the server knows whether the start is committed.
    """
    assignment, dependencies = claim.assignment, claim.dependencies
    clock, backoff = dependencies.clock, None
    while end.reason is None:
        sent_at = clock.boottime()
        try:
            outcome = await dependencies.reporter.commit_start(assignment.instance_id, assignment.token)
        except Conflict:
            return None
        except HetuflowError as error:
            reserved_until = dependencies.server_clock.boottime_of(assignment.reserved_until)
            if clock.boottime() > reserved_until + claim.lease:
                claim.log.warning("start could not be committed in time", error=error.message)
                return None
            backoff = backoff or Backoff(dependencies.rng, longest=2.0)
            await end.until(clock.boottime() + backoff.fail(error))
            continue
        if outcome is ReportOutcome.OK:
            return sent_at
        claim.log.info("server refused the start", outcome=outcome.value)
        return None
    return None


@dataclass(slots=True)
class Launch:
    """Work that is ready to begin. Without a `program`, the executor does the work inside the agent.

    `assignment` contains the values of secrets and is never written to disk.
    """

    executor: Executor
    assignment: Assignment
    environment: Mapping[str, str]
    program: Plan | None


async def plan_launch(claim: Claim, secrets: Mapping[str, str]) -> Launch:
    """Raises SpawnFailed or Invalid if the work cannot begin on this agent."""
    assignment, executor, directory = claim.assignment, claim.executor, claim.directory
    if executor is None:
        name = assignment.run.executor or CommandExecutor.name
        raise SpawnFailed(f"This agent has no executor {name}: install it or correct the job.")
    if assignment.run.secrets:
        assignment = structs.replace(assignment, run=with_secrets(assignment.run, secrets))
    executor.check(assignment.run)
    user = permitted_user(assignment.run.user, claim.dependencies.run_as)
    environment = task_environment(claim.dependencies.base_environment, assignment, directory, user)
    program = await executor.plan(assignment, directory, environment)
    if user is not None:
        if program is None:
            raise SpawnFailed("This work has no separate process to run as another user: remove run.user.")
        try:
            await asyncio.to_thread(directory.give_to, user.uid, user.gid)
        except OSError as error:
            raise SpawnFailed(f"{user.name} cannot own the work directory ({error}).") from error
    return Launch(executor, assignment, environment, program)


def command_for(claim: Claim, program: Plan, renewed_at: float) -> Command:
    """The program as the keeper has to run it."""
    assignment, dependencies = claim.assignment, claim.dependencies
    # The log of a daemon never ends. The agent frees the disk space of the parts that it has shipped.
    rolling = assignment.slot is not None
    unlimited = rolling and not gives_room_back(str(dependencies.data.instances))
    return Command(
        key=assignment.token,
        argv=program.argv,
        cwd=program.cwd,
        env=program.env,
        stdout=claim.directory.at("stdout"),
        stderr=claim.directory.at("stderr"),
        marker=marker_of(assignment.instance_id),
        at=claim.due(),
        timeout=None if assignment.timeout_ms is None else assignment.timeout_ms / 1000,
        kill_grace=assignment.kill_grace_ms / 1000,
        lease=claim.lease if claim.bound_to_lease else None,
        renewed_at=renewed_at,
        output_limit=None if unlimited else dependencies.output_limit,
        rolling=rolling,
        memory=assignment.resources.memory or None,
        cpu=assignment.resources.cpu or None,
        nice=dependencies.niceness,
        user=assignment.run.user,
        counted=dependencies.processes.queues_commands,
    )


async def await_child(claim: Claim, child: Child, end: EndRequest, left: Callable[[], bool]) -> Exit | None:
    """Wait for the exit of a command at the keeper; None if the agent leaves the command to the keeper.

    The keeper itself watches timeout and lease. The agent only passes on requests to end.
    """
    child.on_news = end.changed.set
    stopped = False
    while not child.exit.done():
        if child.running:
            claim.dependencies.shipper.note_begun(claim.assignment.token)
        if left():
            return None
        if end.reason is not None and not stopped:
            stopped = True
            claim.log.info("ending process", reason=end.reason)
            child.stop(claim.grace(end.reason), end.reason.value)
        await end.next_change()
    return child.exit.result()


async def await_execution(
    claim: Claim, execution: Execution, end: EndRequest, commit: Callable[[], Awaitable[bool]] | None
) -> Exit:
    """Wait for the end of work inside the agent, at most until its timeout.

    `commit` is called for work that began before its start was committed and is not brief.
    """
    timers, timeout_ms = claim.dependencies.timers, claim.assignment.timeout_ms
    deadline = None if timeout_ms is None else timers.clock.boottime() + timeout_ms / 1000
    exited = asyncio.ensure_future(execution.wait())
    exited.add_done_callback(lambda _: end.changed.set())
    if commit is not None and not await _is_brief(exited, end, timers) and not await commit():
        end.reason = end.reason or Ending.UNWANTED
    alarm = None if deadline is None else timers.set(deadline, end.changed.set)
    try:
        while not exited.done() and end.reason is None:
            if deadline is not None and timers.clock.boottime() >= deadline - _TIMER_ERROR:
                end.reason = Ending.TIMED_OUT
                break
            await end.next_change()
    finally:
        if alarm is not None:
            alarm.cancel()
    if not exited.done():
        claim.log.info("ending execution", reason=end.reason)
        await execution.end(claim.grace(end.reason))
    return replace(await exited, why=end.reason.value if end.reason else None)


async def _is_brief(exited: asyncio.Future[Exit], end: EndRequest, timers: Timers) -> bool:
    """Whether the work ends, or has to end, before its start must be committed."""
    await end.until(timers.clock.boottime() + _BRIEF, unless=exited.done)
    return exited.done() or end.reason is not None


async def report(
    claim: Claim,
    verdict: Verdict,
    *,
    child: Child | None,
    started_at: int | None,
    contents: FolderContents | None,
) -> None:
    """Write the result to the record file, then have it sent to the server.

    `contents`: what the work folder contains, if no process of the work is left.
    """
    assignment, dependencies = claim.assignment, claim.dependencies
    shipper, token, output = dependencies.shipper, assignment.token, None
    if started_at is not None:
        verdict, output = await _collect(claim, verdict, contents)
    ended_at = claim.server_ms(None if child is None else child.ended)
    has_secrets = bool(assignment.run.secrets)
    finish = Finish(
        instance_id=assignment.instance_id,
        token=token,
        status=verdict.status,
        started_at=started_at,
        finished_at=dependencies.server_clock.now_ms() if ended_at is None else ended_at,
        exit_code=verdict.exit_code,
        signal=verdict.signal,
        oom=verdict.oom,
        reason=verdict.reason,
        message=shipper.masked(token, verdict.message) if has_secrets else verdict.message,
        output=shipper.masked(token, output) if has_secrets else output,
        usage=verdict.usage,
    )
    shipper.close(token, failed=verdict.status in FAILURES, contents=contents)
    try:
        await dependencies.outbox.put(finish, claim.directory.name)
    except HostBlocked as error:
        # The keeper keeps its record of the exit, because it is not asked to forget the command.
        claim.log.error("result not written to disk, reporting from memory", error=error.message)  # noqa: TRY400  the traceback adds nothing
    else:
        if child is not None:
            dependencies.processes.forget(token)
        if not has_secrets:  # the heartbeat may still need the log's secrets to mask a progress message
            shipper.reuse_folder(token)
    dependencies.reporter.submit(finish)


async def _collect(
    claim: Claim, verdict: Verdict, contents: FolderContents | None
) -> tuple[Verdict, dict[str, Any] | None]:
    """Read the output and store the artifacts; a failure of either changes the verdict."""
    output = None
    # Most work writes no output. A thread to read it costs more than the check of its size.
    if contents is None or contents.sizes.get(OUTPUT) != 0:
        verdict, output = await asyncio.to_thread(collect_output, verdict, claim.directory.output)
    artifacts = claim.dependencies.artifacts
    if artifacts is not None and claim.assignment.run.outputs:
        verdict = await artifacts.collect_outputs(verdict, claim.assignment, claim.cwd)
    return verdict, output


async def release(claim: Claim) -> bool:
    """Give the claim back to the server; whether the server accepted that."""
    assignment, reporter = claim.assignment, claim.dependencies.reporter
    try:
        outcome = await reporter.release(assignment.instance_id, assignment.token)
    except HetuflowError as error:
        claim.log.info("claim could not be released", error=error.message)
        return False
    return outcome is ReportOutcome.OK


async def drop(claim: Claim, child: Child | None) -> None:
    """Remove all traces of a claim for which the server expects no result."""
    dependencies, token = claim.dependencies, claim.assignment.token
    dependencies.claims.let_go(token)
    await dependencies.shipper.drop(token)
    await asyncio.to_thread(claim.directory.remove)
    try:
        await dependencies.outbox.forget(token)
    except HostBlocked as error:
        claim.log.warning("dropped claim stays in the record file", error=error.message)
    if child is not None:
        dependencies.processes.forget(token)
