"""The first steps of an attempt: folder, journal, inputs, the server's yes, the spawn."""

from __future__ import annotations

import asyncio
from typing import Final

from msgspec import structs

from hetuflow_agent.backoff import Backoff
from hetuflow_agent.executors.environment import marker_of, task_environment
from hetuflow_agent.executors.interface import Plan, SpawnFailed
from hetuflow_agent.executors.registry import executor_name
from hetuflow_agent.gateway_client import Unanswered
from hetuflow_agent.logs.holes import gives_room_back
from hetuflow_agent.processes.command import Command
from hetuflow_agent.runner.classify import Ending
from hetuflow_agent.runner.course import Course
from hetuflow_agent.runner.recording import end_unspawned
from hetuflow_agent.runner.secrets import SecretFault, with_secrets
from hetuflow_agent.runner.slots import Waits
from hetuflow_agent.task_users import TaskUser, find_user
from hetuflow_core.errors import Conflict, HetuflowError
from hetuflow_core.messages import Assignment, ReportOutcome

_COMMIT_AHEAD: Final = 1.0


async def prepare(course: Course) -> None:
    workshop = course.workshop
    seal = workshop.spares.take(course.directory)
    if seal is None:
        await workshop.data.make(course.directory)
    else:
        course.seal = seal
    workshop.shipper.follow(
        course.assignment.instance_id,
        course.assignment.token,
        course.directory,
        veiled=bool(course.assignment.run.secrets),
        resting=course.waits is not Waits.HERE,
        rolling=course.assignment.slot is not None,
    )


async def journal(course: Course) -> None:
    await course.workshop.outbox.note(course.entry())


async def bring_inputs(course: Course) -> None:
    carrier = course.workshop.carrier
    if carrier is not None:
        await carrier.bring_inputs(course.assignment, course.cwd)


async def bring_secrets(course: Course) -> None:
    """Into memory, before the start: the due instant waits for nobody."""
    room = course.workshop.secrets
    if room is None:
        raise SecretFault("This agent has nobody to ask for secrets.")
    course.secrets = await room.bring(course.assignment, course.directory)


async def may_finish_directly(course: Course) -> bool:
    """Whether it may begin as it is reserved: brief work in the agent that was due when it was claimed."""
    executor = course.workshop.executors.get(executor_name(course.assignment.run))
    if course.resumed or executor is None or executor.kept:
        return False
    if course.workshop.server_clock.boottime_reaching(course.assignment.due_at) > course.came_at:
        return False
    try:
        return await executor.is_brief(course.assignment)
    except (HetuflowError, SpawnFailed):
        return False  # told when it is to begin


async def start(course: Course) -> bool:
    """Whether the server lets us run it."""
    if not course.came_due:
        due = course.workshop.server_clock.boottime_reaching(course.assignment.due_at)
        await course.until(due - _COMMIT_AHEAD)
    return not course.asked_to_end() and await commit_start(course) and not course.asked_to_end()


async def commit_start(course: Course) -> bool:
    """Ask until there is an answer: after one that was lost only the server knows what holds."""
    assignment, workshop = course.assignment, course.workshop
    backoff: Backoff | None = None
    while not course.asked_to_end():
        sent = course.clock.boottime()
        course.start_sent = True
        try:
            outcome = await workshop.desk.commit_start(assignment.instance_id, assignment.token)
        except Conflict:
            return False
        except HetuflowError as error:
            reserved_until = workshop.server_clock.boottime_of(assignment.reserved_until)
            if course.clock.boottime() > reserved_until + course.lease:
                course.log.warning("A start could not be committed in time.", error=error.message)
                return False
            backoff = backoff or Backoff(workshop.rng, longest=2.0)
            wait = backoff.fail(error.retry_after if isinstance(error, Unanswered) else None)
            await course.until(course.clock.boottime() + wait)
            continue
        if outcome is ReportOutcome.OK:
            course.renewed_at = sent
            return True
        course.log.info("The server does not want this started any more.", outcome=outcome.value)
        return False
    return False


async def spawn(course: Course) -> bool:
    """At the due instant and never before; False, with that recorded, when it was not to be any more."""
    workshop, assignment = course.workshop, _with_values(course)
    name = executor_name(assignment.run)
    executor = workshop.executors.get(name)
    if executor is None:
        raise SpawnFailed(f"This agent has no executor {name}: install it or correct the job.")
    executor.check(assignment.run)
    user = user_of(course)
    environment = environment_of(course, user)
    course.plan = await executor.plan(assignment, course.directory, environment)
    if user is not None:
        await _hand_over(course, user)
    if course.plan is not None:
        course.child = workshop.processes.spawn(_command(course, course.plan))
        return True
    # Asked again: the answer to the start may have told us more about the server's clock.
    await course.until(workshop.server_clock.boottime_reaching(assignment.due_at))
    if course.lost_lease():
        course.request_end(Ending.LEASE_LOST)
    if course.asked_to_end():
        await end_unspawned(course)
        return False
    # From here on nobody but this process could tell how it ends.
    await workshop.outbox.note(structs.replace(course.entry(), started=True))
    course.started_at = workshop.server_clock.now_ms()
    course.execution = await executor.start(assignment, course.directory, environment)
    return True


def environment_of(course: Course, user: TaskUser | None) -> dict[str, str]:
    base = course.workshop.base_environment
    if user is not None:
        base = {**base, **user.environment}
    return task_environment(base, _with_values(course), course.directory)


def _with_values(course: Course) -> Assignment:
    """With values of secrets in it: for the executor alone, the journal has the other one."""
    assignment = course.assignment
    if not assignment.run.secrets:
        return assignment
    return structs.replace(assignment, run=with_secrets(assignment.run, course.secrets))


def user_of(course: Course) -> TaskUser | None:
    """Whom to run it as, if not as ourselves; asked here again, whatever the server thinks."""
    name = course.assignment.run.user
    if name is None:
        return None
    user = find_user(name) if name in course.workshop.run_as else None
    if user is None:
        raise SpawnFailed(
            f"This agent may not run tasks as {name}: list the user in agent.run_as of an agent of root, "
            "or correct run.user."
        )
    return user


async def _hand_over(course: Course, user: TaskUser) -> None:
    if course.plan is None:
        raise SpawnFailed("This work has no process of its own to run as another user: remove run.user.")
    try:
        await asyncio.to_thread(course.directory.give_to, user.uid, user.gid)
    except OSError as error:
        raise SpawnFailed(f"The work directory cannot be given to {user.name} ({error}).") from error


def _command(course: Course, plan: Plan) -> Command:
    assignment, directory = course.assignment, course.directory
    # A daemon's log has no end; what was shipped of it is given back to the disk.
    rolling = assignment.slot is not None
    unlimited = rolling and not gives_room_back(str(course.workshop.data.instances))
    return Command(
        key=assignment.token,
        argv=plan.argv,
        cwd=plan.cwd,
        env=plan.env,
        stdout=directory.at("stdout"),
        stderr=directory.at("stderr"),
        marker=marker_of(course.instance),
        at=course.workshop.server_clock.boottime_reaching(assignment.due_at),
        timeout=None if assignment.timeout_ms is None else assignment.timeout_ms / 1000,
        kill_grace=assignment.kill_grace_ms / 1000,
        lease=course.lease if course.bound_to_lease else None,
        renewed_at=course.renewed_at,
        output_limit=None if unlimited else course.workshop.output_limit,
        rolling=rolling,
        memory=assignment.resources.memory or None,
        cpu=assignment.resources.cpu or None,
        nice=course.workshop.niceness,
        user=assignment.run.user,
        counted=course.workshop.processes.lines_up,
    )
