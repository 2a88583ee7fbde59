"""Lines are cut, in one direction or both, and answers get lost on them."""

from __future__ import annotations

import random
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from hetuflow_selftest.history import boottime
from hetuflow_selftest.nemesis.server_faults import leader
from hetuflow_selftest.nemesis.signs import Hearing, another_leads, busy_agent, generated, used_server
from hetuflow_selftest.scene.network import BALANCER, POSTGRES
from hetuflow_selftest.scene.scene import Scene

Facts = dict[str, Any]


def cut_leader(scene: Scene, _: random.Random) -> AbstractAsyncContextManager[Facts]:
    return _cut_leader(scene, "both")


def cut_leader_there(scene: Scene, _: random.Random) -> AbstractAsyncContextManager[Facts]:
    """What the leader says does not arrive at the database."""
    return _cut_leader(scene, "there")


def cut_leader_back(scene: Scene, _: random.Random) -> AbstractAsyncContextManager[Facts]:
    """What the leader said was done, and it does not hear of it."""
    return _cut_leader(scene, "back")


@asynccontextmanager
async def _cut_leader(scene: Scene, direction: str) -> AsyncIterator[Facts]:
    """The leader and the database do not hear each other until another one leads; then all arrives late."""
    victim, facts = await leader(scene)
    facts["at"] = boottime()
    await scene.network.cut(victim.name, POSTGRES, direction)
    try:
        yield facts
        await another_leads(scene, facts.get("epoch", 0))
    finally:
        facts["felt"] = await scene.network.mend(victim.name, POSTGRES)
    await generated(scene, facts.get("epoch", 0))


@asynccontextmanager
async def cut_server(scene: Scene, lots: random.Random) -> AsyncIterator[Facts]:
    """A server and all agents do not hear each other, while it and the database do."""
    victim = await used_server(scene, lots, scene.servers)
    facts: Facts = {"victim": victim.name, "at": boottime()}
    await scene.network.cut(victim.name, BALANCER)
    try:
        yield facts
        await scene.outlast_leases(facts["at"])
    finally:
        facts["felt"] = await scene.network.mend(victim.name, BALANCER)


def cut_agent(scene: Scene, lots: random.Random) -> AbstractAsyncContextManager[Facts]:
    return _cut(scene, lots, "both")


def cut_agent_there(scene: Scene, lots: random.Random) -> AbstractAsyncContextManager[Facts]:
    """What the agent says does not arrive."""
    return _cut(scene, lots, "there")


def cut_agent_back(scene: Scene, lots: random.Random) -> AbstractAsyncContextManager[Facts]:
    """What the servers say does not arrive."""
    return _cut(scene, lots, "back")


@asynccontextmanager
async def _cut(scene: Scene, lots: random.Random, direction: str) -> AsyncIterator[Facts]:
    """For longer than the leases last."""
    victim = await busy_agent(scene, lots)
    began = boottime()
    await scene.network.cut(victim.name, BALANCER, direction)
    facts: Facts = {"victim": victim.name, "at": began}
    try:
        yield facts
        await scene.outlast_leases(began)
    finally:
        facts["felt"] = await scene.network.mend(victim.name, BALANCER)


@asynccontextmanager
async def lose_replies(scene: Scene, _: random.Random) -> AsyncIterator[Facts]:
    """Servers get what agents say and act on it, and the first answers of each line are never heard.

    Until that was so of something that had ended.
    """
    hearing = Hearing(scene)
    for agent in scene.agents:
        await scene.lines.suffer(agent.name, "swallow", paths=["/reports", "/poll", "/logs"], most=6)
    facts: Facts = {"victim": ", ".join(agent.name for agent in scene.agents)}
    try:
        yield facts
        await hearing.a_lost_finish()
    finally:
        facts["felt"] = sum([await scene.lines.heal(agent.name) for agent in scene.agents])
