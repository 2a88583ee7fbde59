"""Calendars in the store: applied, put together, kept while they are needed."""

from __future__ import annotations

import asyncio
from datetime import date
from typing import Any

import pytest

from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Conflict, Denied, Invalid, NotFound
from hetuflow_core.resources.apply import ApplyAction
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.schedule import CalendarUse, ScheduleSpec
from hetuflow_server.app.schedule_edits import schedule_edits
from hetuflow_server.apply.documents import DocumentApplier
from hetuflow_server.identity import access_store
from hetuflow_server.postgres.database import Database
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.schedules.calendars.actions import CalendarActions
from hetuflow_server.schedules.calendars.resolved import load_calendars

WHO = RequestContext.internal(Principal.with_role("test", Role.ADMIN))
ELSEWHERE = RequestContext.internal(Principal.with_role("other", Role.EDITOR, "elsewhere"))


def calendar(name: str, **keys: Any) -> dict[str, Any]:
    return {"kind": "calendar", "name": name, **keys}


async def apply(
    database: Database, *documents: dict[str, Any], dry_run: bool = False
) -> list[tuple[str, str]]:
    result = await DocumentApplier(database, SystemClock(), schedule_edits()).apply(
        WHO, documents, dry_run=dry_run
    )
    return [(item.name, item.action.value) for item in result.items]


async def test_calendars_are_created_changed_and_left_alone(database: Database) -> None:
    closed = calendar("closed", weekdays=["sat", "sun"])
    assert await apply(database, closed, dry_run=True) == [("closed", ApplyAction.CREATED)]
    assert await apply(database, closed) == [("closed", ApplyAction.CREATED)]
    assert await apply(database, closed) == [("closed", ApplyAction.UNCHANGED)]
    assert await apply(database, calendar("closed", weekdays=["sun"])) == [("closed", ApplyAction.CHANGED)]
    found = await CalendarActions(database, SystemClock(), schedule_edits()).calendar(
        WHO, "default", "closed"
    )
    assert (found.version, found.spec["weekdays"]) == (2, ["sun"])


async def test_calendars_of_one_apply_may_be_put_together_in_any_order(database: Database) -> None:
    await apply(
        database,
        calendar(
            "closed", calendars=["holidays", "weekend"], dates=["2026-12-24"], **{"except": ["2026-12-26"]}
        ),
        calendar("weekend", weekdays=["sat", "sun"]),
        calendar("holidays", holidays=["DE-BY", "XNYS"]),
    )
    days = {
        day.date: day.why
        for day in await CalendarActions(database, SystemClock(), schedule_edits()).days(
            WHO, "default", "closed", 2026
        )
    }
    assert days[date(2026, 1, 6)] == "Epiphany"
    assert days[date(2026, 7, 4)] == "sat"
    assert days[date(2026, 12, 24)] == "2026-12-24"
    assert days[date(2026, 11, 26)].startswith("Thanksgiving")
    assert date(2026, 12, 26) not in days
    spec = ScheduleSpec(name="x", cron="@daily", calendar=CalendarUse(exclude=("closed",)))
    async with database.transaction() as connection:
        ids = await access_store.namespace_ids(connection, ["default"])
        loaded = await load_calendars(connection, [(ids["default"], spec)])
        unused = await load_calendars(connection, [(ids["default"], ScheduleSpec(name="y", cron="@daily"))])
    assert loaded[ids["default"]]["closed"].why(date(2026, 1, 6)) == "Epiphany"
    assert unused == {}


@pytest.mark.parametrize(
    ("documents", "field", "message"),
    [
        ([calendar("a", calendars=["b"])], "documents[0].calendars", "has no calendar b"),
        (
            [calendar("a", calendars=["b"]), calendar("b", calendars=["c"]), calendar("c", calendars=["a"])],
            "documents[0].calendars",
            "a part of itself through others",
        ),
        ([calendar("a")], "documents[0]", "the calendar has no days"),
        ([calendar("a", calendars=["a"])], "documents[0].calendars", "no part of itself"),
        ([calendar("a", holidays=["DF"])], "documents[0].holidays[0]", "is not a known set of holidays"),
        ([calendar("a", holidays="DE-XX")], "documents[0].holidays", 'DE has no region "XX"'),
        ([calendar("a", dates=["2026-02-30"])], "documents[0].dates[0]", "is not a date"),
        ([calendar("a", dates=["2026-02-02/2026-02-01"])], "documents[0].dates[0]", "turn them round"),
        ([calendar("a", weekdays=["funday"])], "documents[0].weekdays[0]", "is not a weekday"),
        ([calendar("a", holliday=["DE"])], "documents[0].holliday", 'did you mean "holidays"'),
    ],
)
async def test_what_is_refused_changes_nothing(
    database: Database, documents: list[dict[str, Any]], field: str, message: str
) -> None:
    with pytest.raises(Invalid) as caught:
        await apply(database, *documents)
    faults = {fault.field: fault.message for fault in caught.value.faults}
    assert message in faults[field]
    assert (
        await CalendarActions(database, SystemClock(), schedule_edits()).list_calendars(
            WHO, namespace=None, after=None, limit=9, cap=9
        )
    )[1] == 0


async def test_a_calendar_others_are_put_together_from_stays(database: Database) -> None:
    await apply(database, calendar("weekend", weekdays=["sat"]), calendar("closed", calendars=["weekend"]))
    calendars = CalendarActions(database, SystemClock(), schedule_edits())
    with pytest.raises(Conflict, match="used by the calendar closed"):
        await calendars.delete(WHO, "default", "weekend")
    await calendars.delete(WHO, "default", "closed")
    await calendars.delete(WHO, "default", "weekend")
    with pytest.raises(NotFound, match="has no calendar weekend"):
        await calendars.delete(WHO, "default", "weekend")


async def test_keys_are_merged_into_a_calendar(database: Database) -> None:
    calendars = CalendarActions(database, SystemClock(), schedule_edits())
    await calendars.create(WHO, {"name": "closed", "weekdays": ["sat"], "dates": ["2026-01-01"]})
    with pytest.raises(Conflict, match="already"):
        await calendars.create(WHO, {"name": "closed", "weekdays": ["sat"]})
    changed = await calendars.change(WHO, "default", "closed", {"weekdays": ["sun"], "dates": None})
    assert (changed.version, changed.spec["weekdays"], changed.spec["dates"]) == (2, ["sun"], [])
    with pytest.raises(Invalid):
        await calendars.change(WHO, "default", "closed", {"weekdays": None})
    with pytest.raises(NotFound):
        await calendars.change(WHO, "default", "open", {"weekdays": ["sun"]})


async def test_another_namespaces_key_sees_and_changes_nothing(database: Database) -> None:
    await apply(database, {"kind": "namespace", "name": "elsewhere"}, calendar("closed", weekdays=["sat"]))
    calendars = CalendarActions(database, SystemClock(), schedule_edits())
    assert await calendars.list_calendars(ELSEWHERE, namespace=None, after=None, limit=9, cap=9) == ([], 0)
    with pytest.raises(NotFound):
        await calendars.calendar(ELSEWHERE, "default", "closed")
    for refused in (
        calendars.change(ELSEWHERE, "default", "closed", {"weekdays": ["sun"]}),
        calendars.delete(ELSEWHERE, "default", "closed"),
        calendars.create(ELSEWHERE, {"name": "open", "weekdays": ["sun"]}),
    ):
        with pytest.raises((NotFound, Denied)):
            await refused


async def test_two_edits_at_once_make_no_ring(database: Database) -> None:
    await apply(database, calendar("a", weekdays=["sat"]), calendar("b", weekdays=["sun"]))
    calendars = CalendarActions(database, SystemClock(), schedule_edits())
    outcomes = await asyncio.gather(
        calendars.change(WHO, "default", "a", {"calendars": ["b"]}),
        calendars.change(WHO, "default", "b", {"calendars": ["a"]}),
        return_exceptions=True,
    )
    assert sorted(isinstance(outcome, Invalid) for outcome in outcomes) == [False, True]


async def test_one_of_two_that_create_it_at_once_succeeds_and_both_applies_do(database: Database) -> None:
    outcomes = await asyncio.gather(
        *(apply(database, calendar("closed", weekdays=["sat"])) for _ in range(4)), return_exceptions=True
    )
    assert sorted(str(outcome) for outcome in outcomes) == [
        "[('closed', 'created')]",
        *["[('closed', 'unchanged')]"] * 3,
    ]
