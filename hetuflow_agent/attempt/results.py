"""The ways out of an attempt: its result on record, the work given back, or everything about it dropped."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from msgspec import structs

from hetuflow_agent.attempt.artifacts import ArtifactFault
from hetuflow_agent.attempt.attempt_state import AttemptState
from hetuflow_agent.attempt.classify import FAILURES, Ending, Verdict
from hetuflow_agent.attempt.outputs import collect_output
from hetuflow_agent.folders.folder_fingerprint import FolderContents, remains_of
from hetuflow_agent.folders.workdir import OUTPUT
from hetuflow_core.errors import HetuflowError, HostBlocked
from hetuflow_core.messages import Finish, ReportOutcome
from hetuflow_core.states import InstanceStatus

T = TypeVar("T")


async def record(state: AttemptState, verdict: Verdict | None) -> None:
    if verdict is None:
        await drop(state)
        return
    assignment, dependencies = state.assignment, state.dependencies
    contents = remains_of(state.directory, state.fingerprint) if state.deserted else None
    output = None
    if state.started_at is not None:
        verdict, output = await _collect(state, verdict, contents)
    ended = state.server_ms(state.child.ended if state.child is not None else None)
    finish = Finish(
        instance_id=assignment.instance_id,
        token=assignment.token,
        status=verdict.status,
        started_at=state.started_at,
        finished_at=dependencies.server_clock.now_ms() if ended is None else ended,
        exit_code=verdict.exit_code,
        signal=verdict.signal,
        oom=verdict.oom,
        reason=verdict.reason,
        message=_cleaned(state, verdict.message),
        output=_cleaned(state, output),
        usage=verdict.usage,
    )
    dependencies.shipper.close(assignment.token, failed=verdict.status in FAILURES, contents=contents)
    try:
        await dependencies.outbox.put(finish, state.directory.name)
    except HostBlocked as error:
        # The keeper goes on remembering it.
        state.log.error(  # noqa: TRY400  the traceback adds nothing
            "A result could not be kept on disk; it is reported from memory.", error=error.message
        )
    else:
        state.forget_child()
        if not assignment.run.secrets:  # what it says of its progress may still be on its way to be masked
            dependencies.shipper.put_away(assignment.token)
    dependencies.desk.submit(finish)


def _cleaned(state: AttemptState, said: T) -> T:
    """What goes to the server beside the log has no secrets in it either."""
    if not state.assignment.run.secrets:
        return said
    shipper, token = state.dependencies.shipper, state.assignment.token

    def clean(value: Any) -> Any:
        if isinstance(value, str):
            return shipper.cleaned(token, value)
        if isinstance(value, dict):
            return {shipper.cleaned(token, key): clean(item) for key, item in value.items()}
        return [clean(item) for item in value] if isinstance(value, list) else value

    cleaned: T = clean(said)
    return cleaned


async def _collect(
    state: AttemptState, verdict: Verdict, contents: FolderContents | None
) -> tuple[Verdict, dict[str, Any] | None]:
    """What the work has left behind besides its log."""
    output = None
    # A way to a thread and back costs more than the look that most work needs.
    if contents is None or contents.sizes.get(OUTPUT) != 0:
        verdict, output = await asyncio.to_thread(collect_output, verdict, state.directory.output)
    if state.assignment.run.outputs:
        verdict = await _take_outputs(state, verdict)
    return verdict, output


async def _take_outputs(state: AttemptState, verdict: Verdict) -> Verdict:
    carrier, good = state.dependencies.carrier, verdict.status is InstanceStatus.SUCCEEDED
    if carrier is None:
        return verdict
    try:
        await carrier.take_outputs(state.assignment, state.cwd, required=good)
    except ArtifactFault as fault:
        state.log.warning("Files of a task are not kept.", error=str(fault))
        if good:
            return structs.replace(
                verdict, status=InstanceStatus.FAILED, reason=fault.reason, message=str(fault)
            )
    return verdict


async def end_unspawned(state: AttemptState) -> None:
    match state.ending:
        case Ending.CANCELLED:
            await record(state, Verdict(InstanceStatus.CANCELLED))
        case Ending.AGENT_SHUTDOWN | Ending.LEASE_LOST:
            await give_back(state)
        case _:
            await drop(state)


async def give_back(state: AttemptState) -> None:
    """Nothing has begun: let somebody else have it."""
    outcome = None
    try:
        outcome = await state.dependencies.desk.release(state.assignment.instance_id, state.assignment.token)
    except HetuflowError as error:
        state.log.info("A claim could not be given back.", error=error.message)
    if outcome is ReportOutcome.OK or not state.start_sent:
        await drop(state)  # a reservation expires by itself
    else:
        reason = Ending.AGENT_SHUTDOWN if state.ending is None else state.ending
        await record(state, Verdict(InstanceStatus.LOST, reason.value))


async def drop(state: AttemptState) -> None:
    """Nobody wants anything more of this claim."""
    dependencies, token = state.dependencies, state.assignment.token
    dependencies.claims.let_go(token)
    await dependencies.shipper.drop(token)
    await asyncio.to_thread(state.directory.remove)
    try:
        await dependencies.outbox.forget(token)
    except HostBlocked as error:
        state.log.warning("A dropped claim stays in the journal.", error=error.message)
    state.forget_child()


async def break_off(state: AttemptState, error: Exception) -> None:
    if state.child is not None:
        state.child.stop(0.0, Ending.UNWANTED)
        await state.child.wait()
    if state.execution is not None:
        await state.execution.end(0.0)
        state.execution.close()
    if state.start_sent or state.child is not None or state.started_at is not None:
        await record(
            state, Verdict(InstanceStatus.FAILED, "executor_error", f"{type(error).__name__}: {error}")
        )
    else:
        await give_back(state)
