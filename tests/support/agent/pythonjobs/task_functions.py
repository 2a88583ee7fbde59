"""What the tests of the python executor run."""

from __future__ import annotations

import asyncio
import logging
import os
import shlex
import sys
import time
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from threading import Barrier
from typing import Any

from hetuflow_core.client import TaskCancelled, TaskContext, current_task, task

MEETING = Barrier(2)


@dataclass
class Order:
    item: str
    count: int = 1


@task
def add(a: int, b: float = 0.5) -> float:
    return a + b


@task
def typed(day: date, order: Order, context: TaskContext, **more: Any) -> dict[str, Any]:
    context.progress(40, "half  way\nnearly")
    return {"day": day, "item": order.item, "count": order.count, "attempt": context.attempt, **more}


@task
def speak(who: str) -> None:
    """Two of these meet half way, so that their lines would mix if anything could."""
    print(f"{who} one")
    logging.getLogger("acme").warning("%s logs", who)
    MEETING.wait(20)
    print(f"{who} two")
    print(f"{who} err", file=sys.stderr)
    context = current_task()
    assert context is not None
    context.logger.info("%s of %s", who, context.job)


@task
def chatter() -> None:
    """Nobody who catches what fails gets around it."""
    while True:
        try:
            print("x" * 50)
            logging.getLogger("acme").warning("on and on")
        except Exception:  # noqa: BLE001  as functions of users do
            continue


@task
async def chatter_async() -> None:
    while True:
        print("x" * 50)
        await asyncio.sleep(0)


@task
async def speak_async(who: str) -> str:
    for number in range(3):
        print(f"{who} {number}")
        await asyncio.sleep(0)
    return who


@task
def fail(message: str) -> None:
    raise ValueError(message)


@task
def leave(code: int) -> None:
    sys.exit(code)


@task
def give_up() -> None:
    raise TaskCancelled


@task
def give_back_nonsense() -> object:
    return object()


@task
def wait_politely(mark: str, context: TaskContext) -> None:
    Path(mark).touch()
    context.cancelled.wait(60)
    context.check_cancelled()


@task
def wait_deaf(mark: str) -> None:
    Path(mark).touch()
    for _ in range(6_000):
        time.sleep(0.01)


@task
def block(mark: str, released: str) -> None:
    """One call into C, from before the mark is there until the pipe is written to: nothing can be raised."""
    os.system(shlex.join(["touch", mark]) + "; read line < " + shlex.quote(released))


@task
async def wait_async(mark: str) -> None:
    Path(mark).touch()  # noqa: ASYNC240  a file in memory would do, but a test has to see it
    try:
        await asyncio.sleep(60)
    finally:
        Path(f"{mark}.cleaned").touch()  # noqa: ASYNC240  the same


@task(process=True)
def in_process(value: int, context: TaskContext) -> dict[str, Any]:
    print("in a process")
    logging.getLogger("acme").info("of its own")
    context.progress(50, "half")
    return {"double": value * 2, "job": context.job}


@task(process=True)
def process_waits(mark: str) -> None:
    try:
        Path(mark).touch()
        time.sleep(60)
    finally:
        Path(f"{mark}.cleaned").touch()


@task(process=True)
async def process_fails() -> None:
    raise RuntimeError("broken in there")


def not_a_task() -> None:
    pass
