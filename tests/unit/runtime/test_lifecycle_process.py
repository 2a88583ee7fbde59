"""The lifecycle in a process of its own, under real signals."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from importlib.util import find_spec

import pytest

PROGRAM = """
import asyncio, sys, threading, time
from hetuflow_core.errors import PortTaken
from hetuflow_core.runtime.exit_codes import run_command
from hetuflow_core.runtime.lifecycle import Application, run_application
from hetuflow_core.runtime.logging import configure_logging

mode, event_loop = sys.argv[1:]

def say(word):
    print(word, flush=True)

class Base:
    name = "base"
    async def start(self):
        say("+base")
    async def stop(self):
        say("-base")

class Top:
    name = "top"
    async def start(self):
        if mode == "slow-start":
            say("starting")
            await asyncio.Event().wait()
        if mode == "no-start":
            asyncio.get_running_loop().run_in_executor(None, time.sleep, 600)
            raise PortTaken("Port 80 is taken: choose another.")
        say("+top")
    async def stop(self):
        say("-top")
        while mode == "deaf":
            try:
                await asyncio.Event().wait()
            except asyncio.CancelledError:
                pass
        if mode == "thread":
            await asyncio.to_thread(time.sleep, 600)
        if mode == "slow-stop":
            await asyncio.Event().wait()

class Stuck(Base):
    async def stop(self):
        await asyncio.Event().wait()

configure_logging("info", "json")
loop_factory = None
if event_loop == "uvloop":
    import uvloop
    loop_factory = uvloop.new_event_loop
parts = [Stuck() if mode == "no-start" else Base(), Top()]
patience = 0.1 if mode == "no-start" else 30
application = Application(parts, stop_timeout=patience, on_ready=lambda: say("ready"))
sys.exit(run_command(lambda: run_application(application, loop_factory=loop_factory), debug=False))
"""

Start = Callable[[str], subprocess.Popen[str]]


@pytest.fixture(params=["asyncio", "uvloop"])
def start(request: pytest.FixtureRequest) -> Iterator[Start]:
    if find_spec(request.param) is None:
        pytest.skip(f"{request.param} is not installed")
    processes: list[subprocess.Popen[str]] = []

    def launch(mode: str) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            [sys.executable, "-c", PROGRAM, mode, request.param],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        processes.append(process)
        return process

    yield launch
    for process in processes:
        process.kill()
        process.communicate()


def read_until(process: subprocess.Popen[str], word: str) -> list[str]:
    assert process.stdout is not None
    seen: list[str] = []
    for line in process.stdout:
        seen.append(line.strip())
        if seen[-1] == word:
            return seen
    raise AssertionError(f"the process ended before it said {word}: {seen}")


def finish(process: subprocess.Popen[str]) -> tuple[int, list[str], str]:
    out, err = process.communicate(timeout=20)
    return process.returncode, out.split(), err


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_one_signal_stops_in_order(start: Start, number: signal.Signals) -> None:
    process = start("plain")
    assert read_until(process, "ready") == ["+base", "+top", "ready"]
    process.send_signal(number)
    code, said, log = finish(process)
    assert (code, said) == (0, ["-top", "-base"])
    assert "Traceback" not in log


def test_a_signal_while_starting(start: Start) -> None:
    process = start("slow-start")
    read_until(process, "starting")
    process.send_signal(signal.SIGTERM)
    code, said, log = finish(process)
    assert (code, said) == (0, ["-base"])
    assert "Traceback" not in log


@pytest.mark.parametrize("mode", ["slow-stop", "deaf", "thread"])
@pytest.mark.parametrize(("number", "expected"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_a_second_signal_ends_it_whatever_hangs(
    start: Start, mode: str, number: signal.Signals, expected: int
) -> None:
    process = start(mode)
    read_until(process, "ready")
    process.send_signal(number)
    read_until(process, "-top")
    process.send_signal(number)
    code, said, log = finish(process)
    assert (code, said) == (expected, [])
    assert '"part": "base"' in log


def test_a_failed_start_is_told_and_ends_the_process_though_parts_and_threads_hang(start: Start) -> None:
    code, said, log = finish(start("no-start"))
    assert (code, said) == (7, ["+base"])
    assert "hetuflow: Port 80 is taken: choose another.\n" in log
