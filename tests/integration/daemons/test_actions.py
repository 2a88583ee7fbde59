"""What people see of daemons, and what they do with them."""

from __future__ import annotations

from collections.abc import Collection
from uuid import UUID, uuid4

import pytest

from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Conflict, HetuflowError, Invalid, NotFound
from hetuflow_core.resources.daemons import DaemonDetail
from hetuflow_core.states import InstanceStatus
from hetuflow_server.cluster.hints import DAEMONS, Topic
from hetuflow_server.daemons.actions import DaemonActions
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from tests.support.daemons import Kept
from tests.support.queue.engine import WHO, Engine

STRANGER = RequestContext.internal(Principal.with_role("stranger", Role.ADMIN, "elsewhere"))


class Steered(Kept):
    """The same, and whoever steers it."""

    @property
    def actions(self) -> DaemonActions:
        engine = self.engine
        return DaemonActions(engine.database, engine.hints, engine.schedules, engine.clock)

    async def id(self) -> UUID:
        return (await self.engine.schedule("up")).id

    async def shown(self) -> DaemonDetail:
        return await self.actions.daemon(WHO, await self.id())

    async def states(self) -> list[str]:
        return [slot.state for slot in (await self.shown()).slots]


@pytest.fixture
async def kept(scheduling: Engine) -> Steered:
    return await Steered.of(scheduling)


async def test_a_daemon_is_one_thing_with_its_slots(kept: Steered) -> None:
    agent = kept.agent("one")
    await kept.set({"replicas": 2, "readiness": {"tcp": {"port": 1}}, "backoff": {"delay": "1h"}})
    found = await kept.shown()
    assert (found.state, found.wanted, found.running, found.ready) == ("degraded", 2, 0, 0)
    assert [(slot.slot, slot.state, slot.agent) for slot in found.slots] == [
        (0, "starting", "one"),
        (1, "starting", "one"),
    ]
    kept.run(0, agent)
    kept.run(1, agent)
    assert await kept.states() == ["running", "running"]
    await kept.say_ready(0, 1)
    found = await kept.shown()
    assert (found.state, found.ready, found.updated, found.restarts) == ("ready", 2, 2, 0)
    await kept.end(1, exit_code=3)
    found = await kept.shown()
    assert [slot.state for slot in found.slots] == ["ready", "backing_off"]
    last = found.slots[1]
    assert (last.starts, last.restarts, last.crashes) == (2, 1, 1)
    assert (last.last_status, last.last_exit_code) == ("failed", 3)
    assert found.state == "degraded"
    await kept.set(
        {"replicas": 2, "readiness": {"tcp": {"port": 1}}, "backoff": {"delay": "1h"}},
        run={"command": ["sleep", "9"]},
    )
    assert (await kept.shown()).state == "updating"


async def test_stop_start_and_what_is_done(kept: Steered) -> None:
    await kept.set({"replicas": 1, "restart": "never"})
    kept.run(0)
    heard: list[Topic] = []

    def hear(topics: Collection[Topic], *, relayed: bool) -> None:
        assert not relayed
        heard.extend(topics)

    kept.engine.hints.listen(hear)
    id_ = await kept.id()
    assert (await kept.actions.stop(WHO, id_)).state == "stopping"
    assert Topic(DAEMONS, kept.namespace_id) in heard, "the owner is told"
    await kept.settle()
    assert await kept.states() == ["stopping"]
    await kept.obey()
    await kept.settle()
    found = await kept.actions.stop(WHO, id_)
    assert (found.state, found.wanted, found.slots) == ("stopped", 0, [])
    found = await kept.actions.start(WHO, id_)
    await kept.settle()
    kept.run(0)
    await kept.end(0, InstanceStatus.SUCCEEDED)
    assert await kept.states() == ["stopped"]
    await kept.actions.restart(WHO, id_, None)
    await kept.settle()
    kept.run(0)
    await kept.end(0, InstanceStatus.FAILED)
    assert await kept.states() == ["failed"]


async def test_scaling_edits_the_schedule(kept: Steered) -> None:
    await kept.set({"replicas": 1})
    id_ = await kept.id()
    found = await kept.actions.scale(WHO, id_, 3)
    assert (found.wanted, found.spec["replicas"]) == (3, 3)
    await kept.settle()
    assert kept.statuses() == ["pending"] * 3
    version = (await kept.engine.schedule("up")).version
    await kept.actions.scale(WHO, id_, 3)
    assert (await kept.engine.schedule("up")).version == version, "the same again changes nothing"
    for wrong in (-1, 1001):
        with pytest.raises(Invalid):
            await kept.actions.scale(WHO, id_, wrong)


async def test_a_restart_rolls_or_takes_one_slot(kept: Steered) -> None:
    await kept.set({"replicas": 3})
    kept.run_all()
    id_ = await kept.id()
    await kept.actions.restart(WHO, id_, 1)
    await kept.settle()
    assert await kept.obey() == [1]
    kept.run_all()
    await kept.settle()
    assert [slot["incarnation"] for slot in kept.slots()] == [1, 2, 1]
    await kept.actions.restart(WHO, id_, None)
    rolled = []
    for _ in range(3):
        await kept.settle()
        asked = await kept.obey()
        assert len(asked) == 1
        rolled += asked
        kept.run_all()
    await kept.settle()
    assert await kept.obey() == []
    assert rolled == [0, 1, 2]
    reasons = kept.engine.all("SELECT DISTINCT reason FROM sched_task WHERE status = 'cancelled'")
    assert [row["reason"] for row in reasons] == ["restarted"]


async def test_the_history_has_every_instance_newest_first(kept: Steered) -> None:
    agent = kept.agent("one")
    await kept.set({"replicas": 2})
    for exit_code in (1, 2, 3):
        kept.run(0, agent)
        await kept.end(0, exit_code=exit_code)
    id_ = await kept.id()
    first = await kept.actions.history(WHO, id_, before=None, limit=3)
    rest = await kept.actions.history(WHO, id_, before=first[2].task_id, limit=10)
    runs = [*first[:3], *rest]
    assert [run.exit_code for run in runs if run.slot == 0] == [None, 3, 2, 1]
    assert [run.start for run in runs if run.slot == 0] == [4, 3, 2, 1]
    assert [run.status for run in runs if run.slot == 1] == ["pending"]
    assert {run.agent for run in runs if run.status == "failed"} == {"one"}
    assert [run.task_id for run in runs] == sorted((run.task_id for run in runs), reverse=True)


async def test_what_is_refused(kept: Steered) -> None:
    kept.agent("one")
    await kept.set({"per_agent": True})
    id_ = await kept.id()
    await kept.engine.apply({"name": "often", "every": "1h"}, name="cron")
    often = (await kept.engine.schedule("often", job="cron")).id
    actions = kept.actions

    async def code(refused: type[HetuflowError], asked: object) -> str | None:
        with pytest.raises(refused) as raised:
            await asked  # type: ignore[misc] # each is a coroutine
        return raised.value.code

    assert await code(Conflict, actions.scale(WHO, id_, 2)) == "daemon.per_agent"
    assert await code(NotFound, actions.restart(WHO, id_, 7)) == "daemon.no_slot"
    assert await code(NotFound, actions.daemon(WHO, often)) == "daemon.not_found"
    assert await code(NotFound, actions.stop(WHO, uuid4())) == "daemon.not_found"
    assert await code(NotFound, actions.daemon(STRANGER, id_)) == "daemon.not_found"
    await actions.stop(WHO, id_)
    assert await code(Conflict, actions.restart(WHO, id_, None)) == "daemon.stopped"
    await kept.engine.schedules.enable_job(WHO, (await kept.shown()).job_id, enabled=False)
    assert await code(Conflict, actions.start(WHO, id_)) == "job.disabled"


async def test_only_daemons_are_listed(kept: Steered) -> None:
    await kept.set({"replicas": 1})
    await kept.engine.apply({"name": "often", "every": "1h"}, name="cron")
    found, total = await kept.actions.list_daemons(
        WHO, namespace=None, job=None, after=None, limit=10, cap=100
    )
    assert [(one.job, one.name) for one in found] == [("job", "up")]
    assert total == 1
    hidden, _ = await kept.actions.list_daemons(
        STRANGER, namespace=None, job=None, after=None, limit=10, cap=100
    )
    assert hidden == []
