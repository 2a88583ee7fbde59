"""What the server asks of an agent beside work."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hetuflow_agent.live_settings import LiveSettings
from hetuflow_agent.loops.command_handlers import CommandHandlers
from hetuflow_agent.settings import AgentSettings
from hetuflow_core.agent.commands import CommandKind
from hetuflow_core.errors import Invalid
from hetuflow_core.messages import Cancel
from hetuflow_core.runtime.config.loading import load_settings
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_core.runtime.lifecycle import StopSwitch
from hetuflow_core.states import AgentStatus
from tests.integration.agent.conftest import Bench
from tests.support.agent.assignments import assignment_of
from tests.support.waiting import wait_until_async

FOR_EVER = "exec sleep 600"


@dataclass
class Household:
    bench: Bench
    command_handlers: CommandHandlers
    live: LiveSettings
    stop_switch: StopSwitch
    announced: list[int] = field(default_factory=list)
    levels: list[str] = field(default_factory=list)

    async def obey(self, kind: CommandKind, **payload: Any) -> dict[str, Any]:
        """Do it, and what follows once the server knows."""
        done = await self.command_handlers.handlers()[kind](payload)
        if done.then is not None:
            done.then()
        return done.result


@pytest.fixture
def household(bench: Bench, tmp_path: Path) -> Household:
    environ = {
        "HETUFLOW_AGENT__TOKEN": "t",
        "HETUFLOW_AGENT__SLOTS": "50",
        "HETUFLOW_AGENT__DATA_DIR": str(tmp_path),
    }
    live, switch = LiveSettings(load_settings(AgentSettings, env=environ, cwd=tmp_path)), StopSwitch()
    announced: list[int] = []
    levels: list[str] = []

    async def announce() -> None:
        announced.append(bench.runner.free_slots())

    command_handlers = CommandHandlers(
        bench.runner,
        bench.dependencies.claims,
        live,
        data_dir=tmp_path,
        announce=announce,
        set_log_level=levels.append,
        stop_switch=switch,
        clock=bench.dependencies.clock,
    )
    return Household(bench, command_handlers, live, switch, announced, levels)


async def test_drained_it_takes_no_work_until_it_is_resumed(household: Household) -> None:
    runner = household.bench.runner
    assert await household.obey(CommandKind.DRAIN) == {"running": 0}
    assert (runner.free_slots(), household.stop_switch.requested) == (0, False)
    assert await household.obey(CommandKind.RESUME) == {"slots": 50}
    assert runner.free_slots() == 50


@pytest.mark.parametrize(
    ("status", "slots"), [(AgentStatus.ONLINE, 50), (AgentStatus.PENDING, 0), (AgentStatus.DRAINING, 0)]
)
async def test_only_an_agent_that_is_online_takes_work(
    household: Household, status: AgentStatus, slots: int
) -> None:
    household.command_handlers.apply_status(status)
    assert household.bench.runner.free_slots() == slots


async def test_told_to_stop_it_does_so_once_what_runs_has_ended(household: Household) -> None:
    """Daemons never do, so they are ended; nothing that is said later makes it take work again."""
    bench = household.bench
    task, daemon = assignment_of(script=FOR_EVER), assignment_of(script=FOR_EVER, slot=0)
    bench.runner.accept([task, daemon])
    await wait_until_async(lambda: all(attempt.runs for attempt in bench.runner.attempts()))
    told = await household.obey(CommandKind.SHUTDOWN)
    assert told == {"stops": "when what runs has ended", "running": 2}
    await bench.desk.result_of(daemon.instance_id)
    await household.obey(CommandKind.RESUME)
    assert bench.runner.free_slots() == 0
    household.command_handlers.apply_status(AgentStatus.ONLINE)
    assert (bench.runner.free_slots(), household.stop_switch.requested) == (0, False)
    bench.runner.cancel([Cancel(task.instance_id, task.token)])
    await wait_until_async(lambda: household.stop_switch.requested)
    assert task.instance_id in bench.desk.finishes
    assert household.stop_switch.exit_code == ExitCode.OK


@pytest.mark.parametrize(("now", "busy"), [(True, True), (False, False)])
async def test_told_to_stop_now_or_with_nothing_to_do_it_does_so_once_the_server_knows(
    household: Household, now: bool, busy: bool
) -> None:
    bench = household.bench
    if busy:
        bench.runner.accept([assignment_of(script=FOR_EVER)])
        await wait_until_async(lambda: all(attempt.runs for attempt in bench.runner.attempts()))
    done = await household.command_handlers.handlers()[CommandKind.SHUTDOWN]({"now": now})
    assert done.result["stops"] == "now"
    assert not household.stop_switch.requested
    assert done.then is not None
    done.then()
    assert household.stop_switch.requested


async def test_what_is_configured_holds_at_once_and_is_told_to_the_server(household: Household) -> None:
    told = await household.obey(CommandKind.CONFIGURE, slots=7, log_level="debug")
    assert (told["slots"], told["log_level"]) == (7, "debug")
    assert (household.announced, household.levels) == ([7], ["debug"])
    with pytest.raises(Invalid, match="cannot be understood"):
        await household.obey(CommandKind.CONFIGURE, slot=7)


async def test_metrics_say_what_runs_and_what_waits_to_be_reported(household: Household) -> None:
    bench = household.bench
    running, over = assignment_of(script=FOR_EVER), assignment_of(["true"])
    bench.runner.accept([running, over])
    await bench.desk.result_of(over.instance_id)
    await wait_until_async(lambda: [one.runs for one in bench.runner.attempts()] == [True])
    told = await household.obey(CommandKind.METRICS)
    assert (told["running"], told["outbox"], told["slots"], told["free_slots"]) == (1, 1, 50, 49)
    (task,) = told["tasks"]
    assert (task["instance_id"], task["processes"]) == (str(running.instance_id), 1)
