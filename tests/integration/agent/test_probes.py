"""Probes with real processes and real connections."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from hetuflow_agent.attempt.attempt import Attempt
from hetuflow_agent.probes.probe import Refused, ask_http, ask_tcp
from hetuflow_core.messages import Assignment, Cancel, Probe
from hetuflow_core.states import InstanceStatus
from tests.integration.agent.conftest import Bench
from tests.support.agent.assignments import assignment_of
from tests.support.waiting import wait_until_async

OFTEN = {"interval_ms": 50, "timeout_ms": 5_000}


def daemon(script: str, **probes: Probe) -> Assignment:
    return msgspec.structs.replace(assignment_of(script=script, slot=0), **probes)


def attempt_of(bench: Bench, assignment: Assignment) -> Attempt:
    (found,) = [one for one in bench.runner.attempts() if one.assignment.token == assignment.token]
    return found


async def end(bench: Bench, assignment: Assignment) -> None:
    bench.runner.cancel([Cancel(assignment.instance_id, assignment.token)])
    await bench.desk.result_of(assignment.instance_id)


async def test_a_command_says_when_it_is_ready_and_when_not_any_more(bench: Bench, tmp_path: Path) -> None:
    flag = tmp_path / "flag"
    probe = Probe(command=["sh", "-c", f'test -z "$HETUFLOW_INSTANCE_ID" -a -e {flag}'], **OFTEN)
    assignment = daemon("exec sleep 600", readiness=probe)
    bench.runner.accept([assignment])
    await wait_until_async(lambda: bench.runner.readiness().values(), timeout=30)
    assert list(bench.runner.readiness().values()) == [False]
    flag.touch()
    await wait_until_async(lambda: list(bench.runner.readiness().values()) == [True], timeout=30)
    flag.unlink()
    await wait_until_async(lambda: list(bench.runner.readiness().values()) == [False], timeout=30)
    assert attempt_of(bench, assignment).runs, "a probe that ends takes nobody with it"
    await end(bench, assignment)
    assert bench.runner.readiness() == {}


async def test_who_is_not_alive_is_ended_and_told_so(bench: Bench, tmp_path: Path) -> None:
    probe = Probe(command=["test", "-e", str(tmp_path / "alive")], failure_threshold=2, **OFTEN)
    (tmp_path / "alive").touch()
    assignment = daemon("exec sleep 600", liveness=probe)
    bench.runner.accept([assignment])
    await wait_until_async(lambda: attempt_of(bench, assignment).runs, timeout=30)
    (tmp_path / "alive").unlink()
    finish = await bench.desk.result_of(assignment.instance_id)
    assert (finish.status, finish.reason) == (InstanceStatus.FAILED, "liveness_failed")


async def test_a_command_that_hangs_is_ended_with_its_children(bench: Bench, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    probe = Probe(
        command=["sh", "-c", f"echo $$ > {pid}; sleep 600 & wait"],
        interval_ms=600_000,
        timeout_ms=500,
        failure_threshold=1,
    )
    assignment = daemon("exec sleep 600", readiness=probe)
    bench.runner.accept([assignment])
    await wait_until_async(lambda: list(bench.runner.readiness().values()) == [False], timeout=30)
    number = int(pid.read_text())
    await wait_until_async(lambda: not Path(f"/proc/{number}").exists(), timeout=30)
    await end(bench, assignment)


async def test_nobody_is_asked_before_it_runs(bench: Bench, tmp_path: Path) -> None:
    """A start is committed before the work is due; what has not begun is not dead."""
    asked = tmp_path / "asked"
    probe = Probe(
        command=["sh", "-c", f"test -e {tmp_path}/alive && touch {asked}"],
        interval_ms=50,
        initial_delay_ms=300,
        failure_threshold=1,
    )
    assignment = daemon(f"touch {tmp_path}/alive; exec sleep 600", liveness=probe)
    assignment = msgspec.structs.replace(assignment, due_at=assignment.due_at + 900)
    bench.runner.accept([assignment])
    await wait_until_async(asked.exists, timeout=30)
    assert bench.desk.finishes == {}
    await end(bench, assignment)


async def test_a_command_goes_with_the_daemon_it_is_asked_of(bench: Bench, tmp_path: Path) -> None:
    pid = tmp_path / "pid"
    probe = Probe(command=["sh", "-c", f"echo $$ > {pid}; exec sleep 600"], timeout_ms=600_000)
    assignment = daemon("exec sleep 600", readiness=probe)
    bench.runner.accept([assignment])
    number = int(await wait_until_async(lambda: pid.exists() and pid.read_text().strip(), timeout=30))
    await end(bench, assignment)
    await wait_until_async(lambda: not Path(f"/proc/{number}").exists(), timeout=10)


async def test_a_command_that_is_killed_says_no(bench: Bench) -> None:
    probe = Probe(command=["sh", "-c", "kill -9 $$"], failure_threshold=1, **OFTEN)
    assignment = daemon("exec sleep 600", readiness=probe)
    bench.runner.accept([assignment])
    await wait_until_async(lambda: bench.runner.readiness().values(), timeout=30)
    assert list(bench.runner.readiness().values()) == [False]
    await end(bench, assignment)


@pytest.fixture
async def port() -> AsyncIterator[int]:
    """A server that answers with the status that is asked for, or with nonsense."""

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            request = await reader.readuntil(b"\r\n")
        except asyncio.IncompleteReadError:  # a probe that only connects
            writer.close()
            return
        status = request.split()[1].removeprefix(b"/") if request.startswith(b"GET /") else b""
        if status.isdigit():
            writer.write(b"HTTP/1.1 " + status + b" Whatever\r\nContent-Length: 0\r\n\r\n")
        else:
            writer.write(b"x" * 100_000)
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield server.sockets[0].getsockname()[1]


@pytest.mark.parametrize(
    ("path", "why"),
    [("200", None), ("301", None), ("404", "it answers 404"), ("503", "it answers 503"), ("x", "is no HTTP")],
)
async def test_http(port: int, path: str, why: str | None) -> None:
    url = f"http://127.0.0.1:{port}/{path}"
    if why is None:
        await ask_http(url, ())
    else:
        with pytest.raises(Refused, match=why):
            await ask_http(url, ())


async def test_tcp(port: int) -> None:
    await ask_tcp("localhost", port, ())
    with pytest.raises(Refused, match="cannot be connected to"):
        await ask_tcp("127.0.0.1", 1, ())
    with pytest.raises(Refused, match="has no address"):
        await ask_tcp("nowhere.invalid", 1, ())


async def test_networks_that_are_not_listed_are_not_asked() -> None:
    with pytest.raises(Refused, match=r"list its network in agent.http_allow"):
        await ask_http("http://10.1.2.3/", ())


async def test_probes_over_the_network_end_to_end(bench: Bench, port: int) -> None:
    assignment = daemon(
        "exec sleep 600",
        liveness=Probe(host="127.0.0.1", port=port, **OFTEN),
        readiness=Probe(url=f"http://127.0.0.1:{port}/200", initial_delay_ms=10, **OFTEN),
    )
    bench.runner.accept([assignment])
    await wait_until_async(lambda: list(bench.runner.readiness().values()) == [True], timeout=30)
    await end(bench, assignment)
