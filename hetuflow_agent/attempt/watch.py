"""The middle of an attempt: until its work has ended, and what that end amounts to."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from hetuflow_agent.attempt.attempt_state import NEARLY, AttemptState
from hetuflow_agent.attempt.classify import Ending, Verdict, classify, describe
from hetuflow_agent.attempt.slots import Waits
from hetuflow_agent.attempt.start import commit_start
from hetuflow_agent.executors.interface import Execution
from hetuflow_agent.processes.command import Exit
from hetuflow_agent.processes.processes import Child

# How long work may go on that counts as reserved only.
_BRIEF: Final = 0.5


async def watch(state: AttemptState) -> Exit | None:
    """How it ended; None when it goes on without us."""
    if state.child is not None:
        kept = await _watch_kept(state, state.child)
        state.deserted = kept is not None and kept.deserted
        return kept
    if state.execution is None:
        raise RuntimeError("There is nothing to watch.")
    end = await _watch_own(state, state.execution)
    state.execution.close()
    state.deserted = end.deserted
    return end


async def _watch_kept(state: AttemptState, child: Child) -> Exit | None:
    """The keeper watches time and lease; from here come only ends that somebody asks for."""
    child.on_news = state.nudge.set
    recalls = state.dependencies.processes.recalls
    if state.waits is Waits.AT_KEEPER:
        recalls.expect(child.name, child.recall)
    told = False
    try:
        while not child.exit.done():
            if child.running:
                state.dependencies.shipper.stir(state.assignment.token)
            if state.left and not state.may_come_back:
                return None
            if state.ending is not None and not told:
                told = True
                state.log.info("Ending a process.", why=state.ending)
                child.stop(state.grace(), state.ending.value)
            state.nudge.clear()
            await state.nudge.wait()
    finally:
        recalls.settle(child.name)
    state.started_at = state.server_ms(child.started)
    return child.exit.result()


async def _watch_own(state: AttemptState, execution: Execution) -> Exit:
    timeout_ms = state.assignment.timeout_ms
    deadline = None if timeout_ms is None else state.clock.boottime() + timeout_ms / 1000
    exited = asyncio.ensure_future(execution.wait())
    exited.add_done_callback(lambda _: state.nudge.set())
    if state.direct and not await _ended_briefly(state, exited) and not await commit_start(state):
        state.request_end(Ending.UNWANTED)
    alarm = None if deadline is None else state.dependencies.timers.set(deadline, state.nudge.set)
    try:
        while not exited.done() and state.ending is None:
            if deadline is not None and state.clock.boottime() >= deadline - NEARLY:
                state.ending = Ending.TIMED_OUT
                break
            state.nudge.clear()
            await state.nudge.wait()
    finally:
        if alarm is not None:
            alarm.cancel()
    if not exited.done():
        state.log.info("Ending an execution.", why=state.ending)
        await execution.end(state.grace())
    return replace(await exited, why=state.ending.value if state.ending else None)


async def _ended_briefly(state: AttemptState, exited: asyncio.Future[Exit]) -> bool:
    """Whether it is over, or asked to be, before its start has to be committed."""
    await state.until(state.clock.boottime() + _BRIEF, unless=exited.done)
    return exited.done() or state.asked_to_end()


def judge(state: AttemptState, end: Exit) -> Verdict | None:
    """By the reason of whoever ended it: who asked too late did not."""
    if end.failure is not None:
        program = state.plan.argv[0] if state.plan is not None else "The command"
        cwd = state.plan.cwd if state.plan is not None else state.directory.work
        end = replace(end, failure=describe(end.failure, program, str(cwd)))
    return classify(end, Ending(end.why) if end.why is not None else None)
