"""The middle of an attempt: until its work has ended, and what that end amounts to."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from typing import Final

from hetuflow_agent.executors.interface import Execution
from hetuflow_agent.processes.command import Exit
from hetuflow_agent.processes.processes import Child
from hetuflow_agent.runner.classify import Ending, Verdict, classify, describe
from hetuflow_agent.runner.course import NEARLY, Course
from hetuflow_agent.runner.slots import Waits
from hetuflow_agent.runner.starting import commit_start

# How long work may go on that counts as reserved only.
_BRIEF: Final = 0.5


async def watch(course: Course) -> Exit | None:
    """How it ended; None when it goes on without us."""
    if course.child is not None:
        kept = await _watch_kept(course, course.child)
        course.deserted = kept is not None and kept.deserted
        return kept
    if course.execution is None:
        raise RuntimeError("There is nothing to watch.")
    end = await _watch_own(course, course.execution)
    course.execution.close()
    course.deserted = end.deserted
    return end


async def _watch_kept(course: Course, child: Child) -> Exit | None:
    """The keeper watches time and lease; from here come only ends that somebody asks for."""
    child.on_news = course.nudge.set
    recalls = course.workshop.processes.recalls
    if course.waits is Waits.AT_KEEPER:
        recalls.expect(child.name, child.recall)
    told = False
    try:
        while not child.exit.done():
            if child.running:
                course.workshop.shipper.stir(course.assignment.token)
            if course.left and not course.may_come_back:
                return None
            if course.ending is not None and not told:
                told = True
                course.log.info("Ending a process.", why=course.ending)
                child.stop(course.grace(), course.ending.value)
            course.nudge.clear()
            await course.nudge.wait()
    finally:
        recalls.settle(child.name)
    course.started_at = course.server_ms(child.started)
    return child.exit.result()


async def _watch_own(course: Course, execution: Execution) -> Exit:
    timeout_ms = course.assignment.timeout_ms
    deadline = None if timeout_ms is None else course.clock.boottime() + timeout_ms / 1000
    exited = asyncio.ensure_future(execution.wait())
    exited.add_done_callback(lambda _: course.nudge.set())
    if course.direct and not await _ended_briefly(course, exited) and not await commit_start(course):
        course.request_end(Ending.UNWANTED)
    alarm = None if deadline is None else course.workshop.timers.set(deadline, course.nudge.set)
    try:
        while not exited.done() and course.ending is None:
            if deadline is not None and course.clock.boottime() >= deadline - NEARLY:
                course.ending = Ending.TIMED_OUT
                break
            course.nudge.clear()
            await course.nudge.wait()
    finally:
        if alarm is not None:
            alarm.cancel()
    if not exited.done():
        course.log.info("Ending an execution.", why=course.ending)
        await execution.end(course.grace())
    return replace(await exited, why=course.ending.value if course.ending else None)


async def _ended_briefly(course: Course, exited: asyncio.Future[Exit]) -> bool:
    """Whether it is over, or asked to be, before its start has to be committed."""
    await course.until(course.clock.boottime() + _BRIEF, unless=exited.done)
    return exited.done() or course.asked_to_end()


def judge(course: Course, end: Exit) -> Verdict | None:
    """By the reason of whoever ended it: who asked too late did not."""
    if end.failure is not None:
        program = course.plan.argv[0] if course.plan is not None else "The command"
        cwd = course.plan.cwd if course.plan is not None else course.directory.work
        end = replace(end, failure=describe(end.failure, program, str(cwd)))
    return classify(end, Ending(end.why) if end.why is not None else None)
