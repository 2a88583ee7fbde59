"""Logs through the gateway and back: by offset, in parts, searched, capped, rotated; masked by an agent."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlencode
from uuid import UUID

import psycopg
import pytest
import zstandard

from hetuflow_core import messages as m
from hetuflow_core.states import InstanceStatus
from tests.e2e.conftest import System
from tests.support.agent.manual_agent import HandAgent
from tests.support.processes.processes import AGENT, HETUFLOW, Running, measured_environment, run
from tests.support.waiting import wait_until

MIB = 1024 * 1024


@pytest.fixture(scope="module")
def agent(lone_server: System) -> HandAgent:
    agent = HandAgent(lone_server.url, lone_server.agent_token)
    agent.register()
    return agent


@pytest.fixture
def work(lone_server: System, agent: HandAgent) -> Iterator[m.Assignment]:
    """One instance at work, whose log is written by hand."""
    task = lone_server.client.run(lone_server.apply(run={"command": ["true"]}).id)
    (one,) = [each for each in agent.poll().assignments if each.task_id == task.id]
    agent.start(one)
    yield one
    agent.finish(one, InstanceStatus.SUCCEEDED, exit_code=0)


def piece(one: m.Assignment, text: bytes, offset: int = 0, stream: str = "stdout") -> m.LogChunk:
    packed = zstandard.ZstdCompressor().compress(text)
    return m.LogChunk(one.instance_id, one.token, stream, offset, len(text), packed)


def read(system: System, instance_id: UUID, **query: Any) -> str:
    answer = system.get(f"/api/v1/task-instances/{instance_id}/logs?{urlencode(query)}")
    assert answer.status_code == 200, answer.text
    return answer.text


def test_one_request_may_hold_many_chunks_of_many_streams(
    lone_server: System, agent: HandAgent, work: m.Assignment
) -> None:
    results = agent.logs(
        piece(work, b"one\n"),
        piece(work, b"err\n", stream="stderr"),
        piece(work, b"two\n", 4),
        piece(work, b"gap\n", 12),
        piece(work, b"one\n"),
        piece(work, b"three\n", 8),
    )
    assert [(each.outcome.value, each.length) for each in results] == [
        ("appended", 4),
        ("appended", 4),
        ("appended", 8),
        ("offset", 8),
        ("offset", 8),
        ("appended", 14),
    ]
    assert read(lone_server, work.instance_id, stream="stdout") == "one\ntwo\nthree\n"
    assert read(lone_server, work.instance_id) == "one\nerr\ntwo\nthree\n"


def test_a_log_is_read_in_parts(lone_server: System, agent: HandAgent, work: m.Assignment) -> None:
    lines = [f"line {number:03}\n".encode() for number in range(100)]
    agent.logs(*(piece(work, line, 9 * number) for number, line in enumerate(lines)))
    here = work.instance_id
    assert read(lone_server, here, stream="stdout", offset=9, length=18) == "line 001\nline 002\n"
    assert read(lone_server, here, stream="stdout", offset=5, length=3) == "000"
    assert read(lone_server, here, stream="stdout", offset=891) == "line 099\n"
    assert read(lone_server, here, tail=2) == "line 098\nline 099\n"
    assert read(lone_server, here, q="7 ") == ""
    assert read(lone_server, here, q="05") == "line 005\n" + "".join(f"line 05{n}\n" for n in range(10))
    assert read(lone_server, here, since="2020-01-01T00:00:00Z").count("\n") == 100
    assert read(lone_server, here, since="2999-01-01T00:00:00+01:00") == ""


@pytest.mark.parametrize(
    "query",
    [
        {"stream": "nonsense"},
        {"offset": 3},
        {"length": 3},
        {"tail": 0},
        {"tail": 10_001},
        {"tail": 3, "q": "x"},
        {"tail": 3, "since": "2020-01-01T00:00:00Z"},
        {"since": "2020-01-01T00:00:00"},
        {"since": "yesterday"},
        {"q": ""},
    ],
)
def test_questions_that_make_no_sense_are_refused(
    lone_server: System, work: m.Assignment, query: dict[str, Any]
) -> None:
    answer = lone_server.get(f"/api/v1/task-instances/{work.instance_id}/logs?{urlencode(query)}")
    assert answer.status_code in {400, 422}, answer.text


def test_a_log_beyond_the_cap_is_cut_with_a_mark(
    lone_server: System, agent: HandAgent, work: m.Assignment
) -> None:
    chunks = [piece(work, b"\0" * MIB, number * MIB) for number in range(65)]
    results = agent.logs(*chunks)
    assert [each.outcome.value for each in results[:64]] == ["appended"] * 64
    assert (results[64].outcome.value, results[64].length) == ("refused", 64 * MIB)
    assert agent.logs(chunks[64])[0].outcome is m.LogOutcome.REFUSED
    agent.logs(piece(work, b"still taken\n", stream="stderr"))
    mark = "The stdout of this log is cut here: it is longer than 64Mi.\n"
    assert read(lone_server, work.instance_id, stream="system") == mark
    assert read(lone_server, work.instance_id, stream="stderr", tail=1) == "still taken\n"
    with psycopg.connect(lone_server.database_url) as connection:
        cut = connection.execute(
            "SELECT stream, truncated FROM sched_log_length WHERE instance_id = %s ORDER BY 1",
            [work.instance_id],
        ).fetchall()
    assert cut == [("stderr", False), ("stdout", True), ("system", False)]


def test_a_daemons_log_loses_its_oldest_part_instead(
    lone_server: System, agent: HandAgent, work: m.Assignment
) -> None:
    with psycopg.connect(lone_server.database_url, autocommit=True) as connection:
        connection.execute("UPDATE sched_task_instance SET slot = 0 WHERE id = %s", [work.instance_id])
        for first in (0, 40, 80):
            chunks = [piece(work, b"\0" * MIB, number * MIB) for number in range(first, first + 40)]
            assert {each.outcome.value for each in agent.logs(*chunks)} == {"appended"}
        oldest, length = connection.execute(
            "SELECT min(start_offset), sum(byte_length) FROM sched_log_chunk WHERE instance_id = %s",
            [work.instance_id],
        ).fetchone() or (0, 0)
    assert 64 * MIB <= length <= 73 * MIB
    assert oldest == 120 * MIB - length
    agent.logs(piece(work, b"newest\n", 120 * MIB))
    assert read(lone_server, work.instance_id, stream="stdout", offset=120 * MIB) == "newest\n"


def test_a_stranger_writes_nothing(agent: HandAgent, work: m.Assignment) -> None:
    packed = zstandard.ZstdCompressor().compress(b"hi")
    (result,) = agent.logs(m.LogChunk(work.instance_id, work.task_id, "stdout", 0, 2, packed))
    assert result.outcome is m.LogOutcome.REFUSED


def test_the_command_shows_parts_of_logs(system: System) -> None:
    script = "for n in $(seq 20); do echo line $n; done; echo wrong >&2"
    job = system.apply(run={"script": script})
    task = system.client.wait(system.client.run(job.id).id, timeout=60)

    def shown(*options: str) -> str:
        result = run([*HETUFLOW, "task", "logs", str(task.id), *options], env=system.environment())
        assert result.returncode == 0, result.stderr
        return result.stdout

    assert shown("--tail", "2", "--stream", "stdout") == "line 19\nline 20\n"
    assert shown("--grep", "wrong") == "wrong\n"
    assert shown("--since", "1h").count("line") == 20
    assert shown("-f", "--tail", "2", "--stream", "stdout") == "line 19\nline 20\n"
    refused = run([*HETUFLOW, "task", "logs", "-f", "--grep", "x", str(task.id)], env=system.environment())
    assert refused.returncode == 2
    assert system.client.logs(task.instances[0].id, "stdout", offset=7, length=6) == b"line 2"


def peak_of(pid: int) -> int:
    """The most bytes of memory a process has had since that was set back."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="ascii")
    return int(re.findall(r"VmHWM:\s+(\d+) kB", status)[0]) * 1024


def test_a_long_log_neither_stalls_its_task_nor_is_held_in_memory(system: System, tmp_path: Path) -> None:
    """While it is written the server does not move: nobody can take any of it."""
    script = f"""
        cat ../../../lock > {tmp_path}/agent
        until [ -e {tmp_path}/go ]; do sleep 0.05; done
        seq 1 11000000
        touch {tmp_path}/written
    """
    job = system.apply(run={"script": script})
    task = system.client.run(job.id)
    agent = int(wait_until(lambda: (tmp_path / "agent").exists() and (tmp_path / "agent").read_text()))
    before = {}
    for pid in (agent, system.server.pid):
        Path(f"/proc/{pid}/clear_refs").write_text("5")
        before[pid] = peak_of(pid)
    system.server.signal(signal.SIGSTOP)
    try:
        (tmp_path / "go").touch()
        wait_until((tmp_path / "written").exists, timeout=60, what="the task to have written all of it")
    finally:
        system.server.signal(signal.SIGCONT)
    ended = system.client.wait(task.id, timeout=60)
    assert ended.status == "succeeded"
    instance = ended.instances[0].id
    # It is longer than what is kept of it, and says so at the end.
    wait_until(lambda: system.client.logs(instance, "system"), timeout=60, what="the end of its log")
    assert system.client.logs(instance, "stdout", offset=60 * MIB, length=100).count(b"\n") > 10
    grown = {pid: (peak_of(pid) - at) // MIB for pid, at in before.items()}
    assert max(grown.values()) < 32, grown


def test_secrets_do_not_leave_the_host(system: System, tmp_path: Path) -> None:
    environment = measured_environment(
        HETUFLOW_AGENT__SERVER_URL=system.url,
        HETUFLOW_AGENT__TOKEN=system.agent_token,
        HETUFLOW_AGENT__NAME="discreet",
        HETUFLOW_AGENT__SLOTS="2",
        HETUFLOW_AGENT__DATA_DIR=str(tmp_path / "data"),
        HETUFLOW_AGENT__LABELS="zone=discreet",
        HETUFLOW_AGENT__MASK=r"password=\S+",
    )
    with Running(AGENT, env=environment) as agent:
        agent.await_log("Registered.")
        # In two writes, with a pause that lets the first be looked at by itself.
        script = (
            'printf "a pass"; sleep 0.5; printf "word=abc b\\n"; echo "$TOKEN" >&2; printf "\\033[1mbold\\n"'
        )
        job = system.apply(
            run={"script": script, "env": {"TOKEN": system.agent_token}},
            placement={"labels": {"zone": "discreet"}},
        )
        task = system.client.wait(system.client.run(job.id).id, timeout=60)
        assert task.status == "succeeded"
        instance = task.instances[0].id
        assert system.client.logs(instance, "stdout") == b"a " + b"*" * 12 + b" b\n\033[1mbold\n"
        assert system.client.logs(instance, "stderr") == b"*" * len(system.agent_token) + b"\n"
