"""The first steps of an attempt: folder, journal, inputs, the server's yes, the spawn."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import structs

from hetuflow_agent.attempt.attempt_state import AttemptState
from hetuflow_agent.attempt.classify import Ending
from hetuflow_agent.attempt.results import end_unspawned
from hetuflow_agent.attempt.secrets import SecretFault, with_secrets
from hetuflow_agent.attempt.slots import Waits
from hetuflow_agent.executors.environment import marker_of, task_environment
from hetuflow_agent.executors.interface import Plan, SpawnFailed
from hetuflow_agent.executors.registry import executor_name
from hetuflow_agent.gateway import Unanswered
from hetuflow_agent.gateway.backoff import Backoff
from hetuflow_agent.host.users import TaskUser, find_user
from hetuflow_agent.logs.holes import gives_room_back
from hetuflow_agent.processes.command import Command
from hetuflow_core.errors import Conflict, HetuflowError
from hetuflow_core.messages import Assignment, ReportOutcome

_COMMIT_AHEAD: Final = 1.0


async def prepare(state: AttemptState) -> None:
    dependencies = state.dependencies
    fingerprint = dependencies.spares.take(state.directory)
    if fingerprint is None:
        await dependencies.data.make(state.directory)
    else:
        state.fingerprint = fingerprint
    dependencies.shipper.follow(
        state.assignment.instance_id,
        state.assignment.token,
        state.directory,
        veiled=bool(state.assignment.run.secrets),
        resting=state.waits is not Waits.HERE,
        rolling=state.assignment.slot is not None,
    )


async def journal(state: AttemptState) -> None:
    await state.dependencies.outbox.note(state.entry())


async def bring_inputs(state: AttemptState) -> None:
    carrier = state.dependencies.carrier
    if carrier is not None:
        await carrier.bring_inputs(state.assignment, state.cwd)


async def bring_secrets(state: AttemptState) -> None:
    """Into memory, before the start: the due instant waits for nobody."""
    room = state.dependencies.secrets
    if room is None:
        raise SecretFault("This agent has nobody to ask for secrets.")
    state.secrets = await room.bring(state.assignment, state.directory)


async def may_finish_directly(state: AttemptState) -> bool:
    """Whether it may begin as it is reserved: brief work in the agent that was due when it was claimed."""
    executor = state.dependencies.executors.get(executor_name(state.assignment.run))
    if state.resumed or executor is None or executor.kept:
        return False
    if state.dependencies.server_clock.boottime_reaching(state.assignment.due_at) > state.came_at:
        return False
    try:
        return await executor.is_brief(state.assignment)
    except (HetuflowError, SpawnFailed):
        return False  # told when it is to begin


async def start(state: AttemptState) -> bool:
    """Whether the server lets us run it."""
    if not state.came_due:
        due = state.dependencies.server_clock.boottime_reaching(state.assignment.due_at)
        await state.until(due - _COMMIT_AHEAD)
    return not state.asked_to_end() and await commit_start(state) and not state.asked_to_end()


async def commit_start(state: AttemptState) -> bool:
    """Ask until there is an answer: after one that was lost only the server knows what holds."""
    assignment, dependencies = state.assignment, state.dependencies
    backoff: Backoff | None = None
    while not state.asked_to_end():
        sent = state.clock.boottime()
        state.start_sent = True
        try:
            outcome = await dependencies.desk.commit_start(assignment.instance_id, assignment.token)
        except Conflict:
            return False
        except HetuflowError as error:
            reserved_until = dependencies.server_clock.boottime_of(assignment.reserved_until)
            if state.clock.boottime() > reserved_until + state.lease:
                state.log.warning("A start could not be committed in time.", error=error.message)
                return False
            backoff = backoff or Backoff(dependencies.rng, longest=2.0)
            wait = backoff.fail(error.retry_after if isinstance(error, Unanswered) else None)
            await state.until(state.clock.boottime() + wait)
            continue
        if outcome is ReportOutcome.OK:
            state.renewed_at = sent
            return True
        state.log.info("The server does not want this started any more.", outcome=outcome.value)
        return False
    return False


async def spawn(state: AttemptState) -> bool:
    """At the due instant and never before; False, with that recorded, when it was not to be any more."""
    dependencies, assignment = state.dependencies, _with_values(state)
    name = executor_name(assignment.run)
    executor = dependencies.executors.get(name)
    if executor is None:
        raise SpawnFailed(f"This agent has no executor {name}: install it or correct the job.")
    executor.check(assignment.run)
    user = user_of(state)
    environment = environment_of(state, user)
    state.plan = await executor.plan(assignment, state.directory, environment)
    if user is not None:
        await _hand_over(state, user)
    if state.plan is not None:
        state.child = dependencies.processes.spawn(_command(state, state.plan))
        return True
    # Asked again: the answer to the start may have told us more about the server's clock.
    await state.until(dependencies.server_clock.boottime_reaching(assignment.due_at))
    if state.lost_lease():
        state.request_end(Ending.LEASE_LOST)
    if state.asked_to_end():
        await end_unspawned(state)
        return False
    # From here on nobody but this process could tell how it ends.
    await dependencies.outbox.note(structs.replace(state.entry(), started=True))
    state.started_at = dependencies.server_clock.now_ms()
    state.execution = await executor.start(assignment, state.directory, environment)
    return True


def environment_of(state: AttemptState, user: TaskUser | None) -> dict[str, str]:
    base = state.dependencies.base_environment
    if user is not None:
        base = {**base, **user.environment}
    return task_environment(base, _with_values(state), state.directory)


def _with_values(state: AttemptState) -> Assignment:
    """With values of secrets in it: for the executor alone, the journal has the other one."""
    assignment = state.assignment
    if not assignment.run.secrets:
        return assignment
    return structs.replace(assignment, run=with_secrets(assignment.run, state.secrets))


def user_of(state: AttemptState) -> TaskUser | None:
    """Whom to run it as, if not as ourselves; asked here again, whatever the server thinks."""
    name = state.assignment.run.user
    if name is None:
        return None
    user = find_user(name) if name in state.dependencies.run_as else None
    if user is None:
        raise SpawnFailed(
            f"This agent may not run tasks as {name}: list the user in agent.run_as of an agent of root, "
            "or correct run.user."
        )
    return user


async def _hand_over(state: AttemptState, user: TaskUser) -> None:
    if state.plan is None:
        raise SpawnFailed("This work has no process of its own to run as another user: remove run.user.")
    try:
        await asyncio.to_thread(state.directory.give_to, user.uid, user.gid)
    except OSError as error:
        raise SpawnFailed(f"The work directory cannot be given to {user.name} ({error}).") from error


def _command(state: AttemptState, plan: Plan) -> Command:
    assignment, directory = state.assignment, state.directory
    # A daemon's log has no end; what was shipped of it is given back to the disk.
    rolling = assignment.slot is not None
    unlimited = rolling and not gives_room_back(str(state.dependencies.data.instances))
    return Command(
        key=assignment.token,
        argv=plan.argv,
        cwd=plan.cwd,
        env=plan.env,
        stdout=directory.at("stdout"),
        stderr=directory.at("stderr"),
        marker=marker_of(state.instance),
        at=state.dependencies.server_clock.boottime_reaching(assignment.due_at),
        timeout=None if assignment.timeout_ms is None else assignment.timeout_ms / 1000,
        kill_grace=assignment.kill_grace_ms / 1000,
        lease=state.lease if state.bound_to_lease else None,
        renewed_at=state.renewed_at,
        output_limit=None if unlimited else state.dependencies.output_limit,
        rolling=rolling,
        memory=assignment.resources.memory or None,
        cpu=assignment.resources.cpu or None,
        nice=state.dependencies.niceness,
        user=assignment.run.user,
        counted=state.dependencies.processes.lines_up,
    )
