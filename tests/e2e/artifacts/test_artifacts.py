"""Files that go with tasks: through the gateway by hand, and with a real agent from one task to the next."""

from __future__ import annotations

import os
from collections.abc import Iterator
from hashlib import sha256
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import httpx
import psycopg
import pytest
import yaml

from hetuflow_core import messages as m
from hetuflow_core.errors import NotFound
from hetuflow_core.resources.tasks import TaskDetail
from hetuflow_core.states import InstanceStatus
from tests.e2e.conftest import System
from tests.support.agent.manual_agent import HandAgent
from tests.support.processes.processes import HETUFLOW, run

ROOT = Path(__file__).parents[3]
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def agent(lone_server: System) -> HandAgent:
    agent = HandAgent(lone_server.url, lone_server.agent_token)
    agent.register()
    return agent


@pytest.fixture
def work(lone_server: System, agent: HandAgent) -> Iterator[m.Assignment]:
    task = lone_server.client.run(lone_server.apply(run={"command": ["true"]}).id)
    (one,) = [each for each in agent.poll().assignments if each.task_id == task.id]
    agent.start(one)
    yield one
    agent.finish(one, InstanceStatus.SUCCEEDED, exit_code=0)


def store(
    agent: HandAgent, one: m.Assignment, whole: bytes, start: int, stop: int, **facts: Any
) -> tuple[str, int]:
    asked: dict[str, Any] = {
        "session_id": agent.session_id,
        "instance_id": one.instance_id,
        "token": one.token,
        "path": "out/file.bin",
        "size": len(whole),
        "sha256": sha256(whole).hexdigest(),
        "offset": start,
        "data": whole[start:stop],
    }
    answer = agent.call(
        "artifacts/store",
        m.MessageKind.STORE_ARTIFACT,
        m.StoreArtifact(**{**asked, **facts}),
        m.ArtifactStored,
    )
    return answer.outcome.value, answer.length


def content(system: System, instance_id: UUID, path: str) -> bytes:
    return b"".join(system.client.artifact_chunks(instance_id, path))


def test_a_file_comes_in_by_offset_once_whatever_is_repeated(
    lone_server: System, agent: HandAgent, work: m.Assignment
) -> None:
    whole = os.urandom(2_000)
    assert store(agent, work, whole, 0, 800) == ("stored", 800)
    assert store(agent, work, whole, 0, 800) == ("offset", 800)
    assert store(agent, work, whole, 900, 1_000) == ("offset", 800)
    assert lone_server.client.artifacts(work.instance_id) == []
    assert store(agent, work, whole, 800, 2_000) == ("stored", 2_000)
    assert store(agent, work, whole, 800, 2_000) == ("offset", 2_000)
    (found,) = lone_server.client.artifacts(work.instance_id)
    assert (found.path, found.size, found.sha256) == ("out/file.bin", 2_000, sha256(whole).hexdigest())
    assert content(lone_server, work.instance_id, "out/file.bin") == whole
    answer = lone_server.get(f"/api/v1/task-instances/{work.instance_id}/artifacts/out/file.bin")
    assert answer.headers["content-disposition"] == "attachment; filename*=UTF-8''file.bin"
    assert answer.headers["x-content-type-options"] == "nosniff"


def test_what_does_not_have_its_sum_begins_anew(
    lone_server: System, agent: HandAgent, work: m.Assignment
) -> None:
    whole = os.urandom(1_000)
    assert store(agent, work, whole, 0, 1_000, data=bytes(1_000)) == ("offset", 0)
    assert store(agent, work, whole, 0, 1_000) == ("stored", 1_000)
    other = os.urandom(500)
    assert store(agent, work, other, 0, 500) == ("stored", 500)
    assert content(lone_server, work.instance_id, "out/file.bin") == other


def test_an_empty_file_is_a_file(lone_server: System, agent: HandAgent, work: m.Assignment) -> None:
    assert store(agent, work, b"", 0, 0) == ("stored", 0)
    assert content(lone_server, work.instance_id, "out/file.bin") == b""


def test_caps_and_strangers(lone_server: System, agent: HandAgent, work: m.Assignment) -> None:
    assert store(agent, work, b"x", 0, 1, size=65 * MIB)[0] == "too_large"
    for number in range(4):
        assert store(agent, work, b"x", 0, 1, size=60 * MIB, path=f"part-{number}")[0] == "stored"
    assert store(agent, work, b"x", 0, 1, size=60 * MIB, path="part-4")[0] == "too_large"
    assert store(agent, work, b"x", 0, 1, token=uuid4())[0] == "refused"
    assert store(agent, work, b"x", 0, 1, instance_id=uuid4())[0] == "refused"


@pytest.mark.parametrize(
    "facts",
    [
        {"path": "../x"},
        {"path": "/etc/passwd"},
        {"sha256": "abc"},
        {"offset": 5},
        {"size": 0},
        {"size": -1},
        {"data": b"\0" * (MIB + 1), "size": 2 * MIB},
    ],
)
def test_messages_that_break_the_rules_change_nothing(
    lone_server: System, agent: HandAgent, work: m.Assignment, facts: dict[str, Any]
) -> None:
    asked: dict[str, Any] = {
        "session_id": agent.session_id,
        "instance_id": work.instance_id,
        "token": work.token,
        "path": "a",
        "size": 1,
        "sha256": "0" * 64,
        "offset": 0,
        "data": b"x",
    }
    answer = agent.send(
        "artifacts/store", m.MessageKind.STORE_ARTIFACT, m.StoreArtifact(**{**asked, **facts})
    )
    assert answer.status_code == 422
    with psycopg.connect(lone_server.database_url) as connection:
        query = "SELECT count(*) FROM sched_artifact WHERE instance_id = %s"
        assert connection.execute(query, [work.instance_id]).fetchone() == (0,)


def test_what_is_not_there_is_not_found(lone_server: System, work: m.Assignment) -> None:
    with pytest.raises(NotFound):
        content(lone_server, work.instance_id, "nothing")
    with pytest.raises(NotFound):
        lone_server.client.artifacts(uuid4())
    refused = httpx.get(f"{lone_server.url}/api/v1/task-instances/{work.instance_id}/artifacts/x")
    assert refused.status_code == 401


def finish(system: System, run: dict[str, Any], **spec: Any) -> TaskDetail:
    job = system.apply(run=run, **spec)
    return system.client.wait(system.client.run(job.id).id, timeout=60)


def test_the_example_hands_files_from_one_task_to_the_next(system: System, tmp_path: Path) -> None:
    documents = list(yaml.safe_load_all((ROOT / "examples/artifacts.yaml").read_text()))
    system.client.apply(documents)
    made = system.client.run(system.client.job("default", "make-table").id, params={"rows": 7})
    made = system.client.wait(made.id, timeout=60)
    assert made.status == "succeeded"
    listed = run([*HETUFLOW, "task", "artifacts", "list", str(made.id), "-q"], env=system.environment())
    expected = ["parts/part-aa", "parts/part-ab", "parts/part-ac", "parts/part-ad", "table.txt"]
    assert listed.stdout.split() == expected
    fetched = run(
        [*HETUFLOW, "task", "artifacts", "get", str(made.id), "table.txt"],
        env=system.environment(),
        cwd=tmp_path,
    )
    assert fetched.returncode == 0, fetched.stderr
    assert (tmp_path / "table.txt").read_text().splitlines()[-1] == "row 7"
    missing = run(
        [*HETUFLOW, "task", "artifacts", "get", str(made.id), "nothing"],
        env=system.environment(),
        cwd=tmp_path,
    )
    assert missing.returncode != 0
    assert not (tmp_path / "nothing").exists()
    counted = system.client.run(system.client.job("default", "count-table").id)
    counted = system.client.wait(counted.id, timeout=60)
    assert (counted.status, counted.output) == ("succeeded", {"lines": "7"})


def test_large_files_and_files_of_one_task(system: System) -> None:
    script = "head -c 3000000 /dev/urandom > big.bin; sha256sum big.bin | cut -d' ' -f1"
    made = finish(system, {"script": script, "artifacts": {"outputs": ["big.bin"]}})
    (found,) = system.client.artifacts(made.instances[0].id)
    printed = system.client.logs(made.instances[0].id, "stdout").decode().strip()
    assert (found.size, found.sha256) == (3_000_000, printed)
    taken = finish(
        system,
        {
            "script": "sha256sum copy.bin | cut -d' ' -f1",
            "artifacts": {
                "inputs": [{"path": "copy.bin", "from": {"task": "{{ params.task }}", "path": "big.bin"}}]
            },
        },
        params={"task": str(made.id)},
    )
    assert system.client.logs(taken.instances[0].id, "stdout").decode().strip() == printed


def test_what_is_missing_fails_and_what_failed_still_leaves_its_files(system: System) -> None:
    missing = finish(system, {"command": ["true"], "artifacts": {"outputs": ["report.csv", "*.log"]}})
    assert (missing.status, missing.instances[0].reason) == ("failed", "artifact_missing")
    failed = finish(
        system, {"script": "echo trace > crash.log; exit 3", "artifacts": {"outputs": ["*.log", "x"]}}
    )
    assert (failed.status, failed.exit_code, failed.instances[0].reason) == ("failed", 3, None)
    assert content(system, failed.instances[0].id, "crash.log") == b"trace\n"
    source = {"path": "in", "from": {"job": "no-such-job", "path": "x"}}
    nothing = finish(system, {"command": ["true"], "artifacts": {"inputs": [source]}})
    assert (nothing.status, nothing.instances[0].reason) == ("failed", "artifact_missing")
