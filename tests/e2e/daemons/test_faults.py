"""Daemons while agents come, go, are drained and killed: every slot has one process, and never two."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from hetuflow_core.resources.daemons import DaemonDetail
from tests.e2e.conftest import System
from tests.support.agent.keepers import end_keeper
from tests.support.processes.processes import AGENT, Running, clean_environment
from tests.support.waiting import wait_until

LEASE = "4s"


class Pool:
    """Agents that take nothing but what is meant for them, and daemons on them."""

    def __init__(self, server: System, folder: Path, stack: ExitStack) -> None:
        self.server, self.client, self._folder, self._stack = server, server.client, folder, stack
        self.name = f"pool-{uuid4().hex[:8]}"

    def join(self, name: str) -> Running:
        data = self._folder / name
        environment = clean_environment(
            HETUFLOW_AGENT__SERVER_URL=self.server.url,
            HETUFLOW_AGENT__TOKEN=self.server.agent_token,
            HETUFLOW_AGENT__NAME=f"{self.name}-{name}",
            HETUFLOW_AGENT__SLOTS="8",
            HETUFLOW_AGENT__POOLS=self.name,
            HETUFLOW_AGENT__DATA_DIR=str(data),
        )
        self._stack.callback(end_keeper, data)
        running = self._stack.enter_context(Running(AGENT, env=environment))
        running.await_log("ready", timeout=60)
        return running

    def daemon(self, **daemon: Any) -> str:
        """Start one whose processes say who they are in a file; return its job's name."""
        job = self.server.apply(
            run={"script": f'echo "$HETUFLOW_SLOT $$" >> {self._folder}/$HETUFLOW_JOB; exec sleep 1000'},
            placement={"pool": self.name},
            lease=LEASE,
            kill_grace="500ms",
            schedules=[{"name": "up", "daemon": {"backoff": {"delay": "100ms"}, **daemon}}],
        )
        self._stack.callback(lambda: self.client.stop_daemon(self.shown(job.name).id))
        return job.name

    def shown(self, job: str) -> DaemonDetail:
        return self.client.daemon("default", job)

    def where(self, job: str) -> dict[int, str]:
        """On which agent each slot that is ready is."""
        slots = self.shown(job).slots
        return {
            slot.slot: (slot.agent or "").removeprefix(f"{self.name}-")
            for slot in slots
            if slot.state == "ready"
        }

    def await_where(self, job: str, *agents: str) -> dict[int, str]:
        """Wait until the daemon's slots are on these agents."""

        def there() -> dict[int, str] | None:
            found = self.where(job)
            return found if sorted(found.values()) == sorted(agents) else None

        return wait_until(there, timeout=90, what=f"instances on {', '.join(agents)}")

    def processes(self, job: str) -> list[tuple[int, int]]:
        """(slot, pid) of every process that was started, in order."""
        file = self._folder / job
        lines = file.read_text(encoding="utf-8").splitlines() if file.exists() else []
        return [(int(slot), int(pid)) for slot, pid in (line.split() for line in lines)]

    def living(self, job: str) -> list[int]:
        """The slots of those that live."""
        return sorted(slot for slot, pid in self.processes(job) if Path(f"/proc/{pid}").exists())


@pytest.fixture
def pool(lone_server: System, tmp_path: Path) -> Iterator[Pool]:
    with ExitStack() as stack:
        yield Pool(lone_server, tmp_path, stack)


@pytest.mark.timeout(300)  # three agents start one after the other, which takes minutes on a busy machine
def test_slots_follow_agents_that_come_and_go(pool: Pool) -> None:
    pool.join("one")
    doomed = pool.join("two")
    spread, everywhere = pool.daemon(replicas=2), pool.daemon(per_agent=True)
    before = pool.await_where(spread, "one", "two")
    pool.await_where(everywhere, "one", "two")
    pool.join("three")
    pool.await_where(everywhere, "one", "two", "three")
    assert pool.where(spread) == before, "nobody moves without need"

    # Killed, and nobody takes up its work: the keeper ends it before the lease is over, then it is replaced.
    (moved,) = [slot for slot, agent in before.items() if agent == "two"]
    wait_until(lambda: pool.living(spread) == [0, 1], timeout=60, what="both processes")
    (old,) = [pid for slot, pid in pool.processes(spread) if slot == moved]
    doomed.signal(signal.SIGKILL)
    pool.await_where(spread, "one", "three")
    assert not Path(f"/proc/{old}").exists(), "two processes of one slot"
    wait_until(lambda: pool.living(spread) == [0, 1], timeout=60, what="the new process")

    # Drained: its slot goes to the only one left, and it keeps none of the other daemon.
    agents = {one.name: one.id for one in pool.client.agents(labels={})}
    pool.client.drain_agent(agents[f"{pool.name}-one"])
    pool.await_where(spread, "three", "three")
    wait_until(lambda: "one" not in pool.where(everywhere).values(), timeout=60, what="it to leave")
    wait_until(lambda: pool.living(spread) == [0, 1], timeout=60, what="the new process")
    lost = [run.reason for run in pool.client.daemon_history(pool.shown(spread).id) if run.status == "lost"]
    drained = [
        run.reason for run in pool.client.daemon_history(pool.shown(spread).id) if run.status == "cancelled"
    ]
    assert lost in ([], ["lease_expired"], ["lease_lost"])
    assert drained == ["agent_drained"]
