"""Generation goes by calendars, and an edit of one takes back what it forbids and makes what it allows."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.app.schedule_edits import schedule_edits
from hetuflow_server.schedules.calendars.actions import CalendarActions
from hetuflow_server.schedules.generator import Generator
from tests.support.queue.engine import WHO, Engine, leading

EVERY_DAY = ["mon", "tue", "wed", "thu", "fri", "sat", "sun"]
NEVER: dict[str, Any] = {"weekdays": None, "dates": ["2001-01-01"]}


@pytest.fixture
async def generator(scheduling: Engine) -> AsyncIterator[Generator]:
    async with leading(scheduling.url) as leadership:
        yield Generator(scheduling.database, leadership, scheduling.versions, scheduling.hints)


async def test_an_edit_of_a_calendar_takes_back_and_makes(scheduling: Engine, generator: Generator) -> None:
    calendars = CalendarActions(scheduling.database, SystemClock(), schedule_edits())
    await calendars.create(WHO, {"name": "closed", "weekdays": EVERY_DAY})
    await scheduling.apply(
        {"name": "often", "every": "1s", "calendar": "closed"}, {"name": "other", "every": "1s"}
    )

    async def made() -> dict[str, int]:
        while await generator.run_once():
            pass
        rows = scheduling.all(
            "SELECT s.name, count(t.id) AS tasks FROM sched_schedule s "
            "LEFT JOIN sched_task t ON t.schedule_id = s.id AND t.fire_at > now() GROUP BY s.name"
        )
        return {row["name"]: row["tasks"] for row in rows}

    closed = await made()
    assert (closed["often"], closed["other"] > 30) == (0, True)
    await calendars.change(WHO, "default", "closed", NEVER)
    opened = await made()
    assert opened["often"] > 30
    await calendars.change(WHO, "default", "closed", {"weekdays": EVERY_DAY})
    again = await made()
    assert (again["often"], again["other"] > 30) == (0, True)
