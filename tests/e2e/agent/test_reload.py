"""An agent whose configuration changes while it works."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import System
from tests.support.agent.hosts import Host
from tests.support.agent.keepers import end_keeper
from tests.support.http.webserver import reply, serving_web
from tests.support.processes.processes import AGENT, Running
from tests.support.waiting import wait_until

AGAIN = "The configuration was read again."


@pytest.fixture
def host(lone_server: System, tmp_path: Path) -> Iterator[Host]:
    data = tmp_path / "data"
    with ExitStack() as stack:
        stack.callback(end_keeper, data)
        yield Host(lone_server, data, stack)


def hang_up(agent: Running, event: str, number: int) -> dict[str, Any]:
    agent.signal(signal.SIGHUP)

    def said() -> dict[str, Any] | None:
        lines = [line for line in agent.log_lines() if line["event"] == event]
        return lines[number - 1] if len(lines) >= number else None

    return wait_until(said, timeout=60, what=event) or {}


def test_sighup_reads_the_configuration_again_and_interrupts_nothing(host: Host, tmp_path: Path) -> None:
    file, gate, client = tmp_path / "app.toml", tmp_path / "gate", host.server.client
    file.write_text('[agent]\nmask = ["first-\\\\w+"]\n')
    agent = host.agent(program=[*AGENT, "--config", str(file)])
    task = host.run(f"while [ ! -e {gate} ]; do sleep 0.05; done; echo first-secret")
    wait_until(lambda: client.task(task.id).status == "running", timeout=30, what="the task to run")

    file.write_text('[agent]\ntaints = ["\n')
    hang_up(agent, "The configuration has faults; the former one stays.", 1)
    assert client.agent(host.name).taints == []

    file.write_text(
        '[agent]\ntaints = ["a=b:NoSchedule"]\nniceness = 7\npython_modules = ["acme.*"]\n'
        'http_allow = ["127.0.0.1/32"]\nmask = ["second-\\\\w+"]\non_stop = "end"\n'
    )
    said = hang_up(agent, AGAIN, 1)
    assert said["at_next_start"] == ["agent.on_stop"]
    assert sorted(said["changed"]) == [
        *("agent.http_allow", "agent.mask", "agent.niceness", "agent.python_modules", "agent.taints")
    ]
    shown = client.agent(host.name)
    assert (shown.taints, shown.executors) == (["a=b:NoSchedule"], ["command", "http", "python"])

    gate.touch()
    done = client.wait(task.id, timeout=60)
    assert (done.status, len(done.instances)) == ("succeeded", 1)
    assert host.printed(done.instances[0].id) == "************\n", "masked as when it began"

    tolerant = {"labels": {"host": host.label}, "tolerations": [{"key": "a", "operator": "Exists"}]}
    job = host.server.apply(
        run={"script": "sleep 0.1; ps -o ni= -p $$; echo first-x second-x"}, placement=tolerant
    )
    later = client.wait(client.run(job.id).id, timeout=60)
    assert host.printed(later.instances[0].id).split() == ["7", "first-x", "********"]
    with serving_web({"/": reply(200)}) as web:
        asking = host.server.apply(run={"http": {"url": f"http://127.0.0.1:{web.port}/"}}, placement=tolerant)
        assert client.wait(client.run(asking.id).id, timeout=60).status == "succeeded"
