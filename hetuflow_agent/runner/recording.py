"""The ways out of an attempt: its result on record, the work given back, or everything about it dropped."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from msgspec import structs

from hetuflow_agent.remains import Remains, remains_of
from hetuflow_agent.runner.artifacts import ArtifactFault
from hetuflow_agent.runner.classify import FAILURES, Ending, Verdict
from hetuflow_agent.runner.course import Course
from hetuflow_agent.runner.outputs import collect_output
from hetuflow_agent.workdir import OUTPUT
from hetuflow_core.errors import HetuflowError, HostBlocked
from hetuflow_core.messages import Finish, ReportOutcome
from hetuflow_core.states import InstanceStatus

T = TypeVar("T")


async def record(course: Course, verdict: Verdict | None) -> None:
    if verdict is None:
        await drop(course)
        return
    assignment, workshop = course.assignment, course.workshop
    remains = remains_of(course.directory, course.seal) if course.deserted else None
    output = None
    if course.started_at is not None:
        verdict, output = await _collect(course, verdict, remains)
    ended = course.server_ms(course.child.ended if course.child is not None else None)
    finish = Finish(
        instance_id=assignment.instance_id,
        token=assignment.token,
        status=verdict.status,
        started_at=course.started_at,
        finished_at=workshop.server_clock.now_ms() if ended is None else ended,
        exit_code=verdict.exit_code,
        signal=verdict.signal,
        oom=verdict.oom,
        reason=verdict.reason,
        message=_cleaned(course, verdict.message),
        output=_cleaned(course, output),
        usage=verdict.usage,
    )
    workshop.shipper.close(assignment.token, failed=verdict.status in FAILURES, remains=remains)
    try:
        await workshop.outbox.put(finish, course.directory.name)
    except HostBlocked as error:
        # The keeper goes on remembering it.
        course.log.error(  # noqa: TRY400  the traceback adds nothing
            "A result could not be kept on disk; it is reported from memory.", error=error.message
        )
    else:
        course.forget_child()
        if not assignment.run.secrets:  # what it says of its progress may still be on its way to be masked
            workshop.shipper.put_away(assignment.token)
    workshop.desk.submit(finish)


def _cleaned(course: Course, said: T) -> T:
    """What goes to the server beside the log has no secrets in it either."""
    if not course.assignment.run.secrets:
        return said
    shipper, token = course.workshop.shipper, course.assignment.token

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return shipper.cleaned(token, value)
        if isinstance(value, dict):
            return {shipper.cleaned(token, key): clean(item) for key, item in value.items()}
        return [clean(item) for item in value] if isinstance(value, list) else value

    cleaned: T = clean(said)
    return cleaned


async def _collect(
    course: Course, verdict: Verdict, remains: Remains | None
) -> tuple[Verdict, dict[str, Any] | None]:
    """What the work has left behind besides its log."""
    output = None
    # A way to a thread and back costs more than the look that most work needs.
    if remains is None or remains.sizes.get(OUTPUT) != 0:
        verdict, output = await asyncio.to_thread(collect_output, verdict, course.directory.output)
    if course.assignment.run.outputs:
        verdict = await _take_outputs(course, verdict)
    return verdict, output


async def _take_outputs(course: Course, verdict: Verdict) -> Verdict:
    carrier, good = course.workshop.carrier, verdict.status is InstanceStatus.SUCCEEDED
    if carrier is None:
        return verdict
    try:
        await carrier.take_outputs(course.assignment, course.cwd, required=good)
    except ArtifactFault as fault:
        course.log.warning("Files of a task are not kept.", error=str(fault))
        if good:
            return structs.replace(
                verdict, status=InstanceStatus.FAILED, reason=fault.reason, message=str(fault)
            )
    return verdict


async def end_unspawned(course: Course) -> None:
    match course.ending:
        case Ending.CANCELLED:
            await record(course, Verdict(InstanceStatus.CANCELLED))
        case Ending.AGENT_SHUTDOWN | Ending.LEASE_LOST:
            await give_back(course)
        case _:
            await drop(course)


async def give_back(course: Course) -> None:
    """Nothing has begun: let somebody else have it."""
    outcome = None
    try:
        outcome = await course.workshop.desk.release(course.assignment.instance_id, course.assignment.token)
    except HetuflowError as error:
        course.log.info("A claim could not be given back.", error=error.message)
    if outcome is ReportOutcome.OK or not course.start_sent:
        await drop(course)  # a reservation expires by itself
    else:
        reason = Ending.AGENT_SHUTDOWN if course.ending is None else course.ending
        await record(course, Verdict(InstanceStatus.LOST, reason.value))


async def drop(course: Course) -> None:
    """Nobody wants anything more of this claim."""
    workshop, token = course.workshop, course.assignment.token
    workshop.claims.let_go(token)
    await workshop.shipper.drop(token)
    await asyncio.to_thread(course.directory.remove)
    try:
        await workshop.outbox.forget(token)
    except HostBlocked as error:
        course.log.warning("A dropped claim stays in the journal.", error=error.message)
    course.forget_child()


async def break_off(course: Course, error: Exception) -> None:
    if course.child is not None:
        course.child.stop(0.0, Ending.UNWANTED)
        await course.child.wait()
    if course.execution is not None:
        await course.execution.end(0.0)
        course.execution.close()
    if course.start_sent or course.child is not None or course.started_at is not None:
        await record(
            course, Verdict(InstanceStatus.FAILED, "executor_error", f"{type(error).__name__}: {error}")
        )
    else:
        await give_back(course)
