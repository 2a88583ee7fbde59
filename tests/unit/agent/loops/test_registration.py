"""Becoming the agent's live session: what is told, what is tried again, and what the answer changes."""

from __future__ import annotations

import random
from pathlib import Path
from uuid import uuid4

import pytest

from hetuflow_agent.attempt.claims import Claims
from hetuflow_agent.gateway import Session, Unanswered
from hetuflow_agent.live_settings import LiveSettings
from hetuflow_agent.loops.registration import Offer, Registration
from hetuflow_agent.settings import AgentSettings
from hetuflow_core.agent.commands import AgentConfiguration
from hetuflow_core.errors import Conflict
from hetuflow_core.messages import Held, LimitMeans, Register, Registered
from hetuflow_core.placement import Resources
from hetuflow_core.runtime.config.loading import load_settings

MEANS = LimitMeans(memory="cgroup")


class Wire:
    def __init__(self) -> None:
        self.failures: list[Exception] = []
        self.asked: list[Register] = []
        self.answer = Registered(uuid4(), 0, 7_000, 25_000, [uuid4()], "draining")

    async def register(self, request: Register) -> Registered:
        self.asked.append(request)
        if self.failures:
            raise self.failures.pop(0)
        return self.answer


class Bench:
    def __init__(self, folder: Path) -> None:
        environ = {
            "HETUFLOW_AGENT__TOKEN": "t",
            "HETUFLOW_AGENT__NAME": "worker",
            "HETUFLOW_AGENT__SLOTS": "4",
            "HETUFLOW_AGENT__LABELS": "zone=eu",
            "HETUFLOW_AGENT__NAMESPACES": "a,b",
            "HETUFLOW_AGENT__POOLS": "gpu",
            "HETUFLOW_AGENT__DATA_DIR": str(folder),
        }
        settings = load_settings(AgentSettings, env=environ, cwd=folder)
        self.wire, self.session, self.claims = Wire(), Session(uuid4()), Claims()
        self.live = LiveSettings(settings)
        self.statuses: list[str] = []
        self.registration = Registration(
            self.wire,  # type: ignore[arg-type]
            self.session,
            Offer(settings.agent, ["command"], ["app"], Resources(cpu=2.0)),
            self.live,
            self.claims,
            limit_means=lambda: MEANS,
            on_status=self.statuses.append,
            rng=random.Random(1),
        )


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    return Bench(tmp_path)


async def test_it_tells_what_it_has_and_what_it_still_holds(bench: Bench) -> None:
    held = Held(uuid4(), uuid4())
    bench.claims.hold(held.instance_id, held.token)
    bench.live.change(AgentConfiguration(slots=9, taints=["spot=yes:NoSchedule"]))
    await bench.registration.start()
    (asked,) = bench.wire.asked
    assert (asked.name, asked.session_id, asked.running) == ("worker", bench.session.session_id, [held])
    assert (asked.slots, asked.taints, asked.labels["zone"]) == (9, ["spot=yes:NoSchedule"], "eu")
    assert (asked.namespaces, asked.pools, asked.executors) == (["a", "b"], ["gpu"], ["command"])
    assert (asked.run_as, asked.resources, asked.limit_means) == (["app"], Resources(cpu=2.0), MEANS)


async def test_the_answer_says_how_to_go_on(bench: Bench) -> None:
    await bench.registration.start()
    answer, session = bench.wire.answer, bench.session
    assert (session.agent_id, session.adopted) == (answer.agent_id, frozenset(answer.adopted))
    # In milliseconds on the wire.
    assert (session.heartbeat_every, session.poll_wait_ms) == (7.0, 25_000)
    assert bench.statuses == ["draining"]


async def test_it_is_tried_until_a_server_answers(bench: Bench) -> None:
    bench.wire.failures = [Unanswered("gone"), Unanswered("still gone")]
    await bench.registration.start()
    assert len(bench.wire.asked) == 3
    assert bench.session.agent_id == bench.wire.answer.agent_id


async def test_what_trying_again_cannot_change_ends_it(bench: Bench) -> None:
    """A session that was replaced, above all, never registers again by itself."""
    bench.wire.failures = [Conflict("another process is this agent")]
    with pytest.raises(Conflict):
        await bench.registration.start()
    assert len(bench.wire.asked) == 1
    assert bench.statuses == []
