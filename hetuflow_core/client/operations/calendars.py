"""The REST calls about calendars."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from hetuflow_core.client.calls import get, pages, post, segment, send
from hetuflow_core.client.exchange import Plan, Request, Stream
from hetuflow_core.client.retry import answered
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.schedules import Calendar, CalendarDay, CalendarDays


def calendars(*, namespace: str | None = None, page_size: int | None = None) -> Stream[Calendar]:
    """The calendars of a namespace, or of all you may see."""
    query = {"namespace": namespace, "limit": page_size}
    return (yield from pages("/calendars", query, Page[Calendar]))


def calendar(namespace: str, name: str) -> Plan[Calendar]:
    """The calendar of this name; `NotFound` if there is none."""
    return (yield from get(_path(namespace, name), Calendar))


def calendar_days(namespace: str, name: str, year: int | None = None) -> Plan[list[CalendarDay]]:
    """The days of a year, the present one if none is given, and what makes each one of them."""
    found = yield from get(f"{_path(namespace, name)}/days", CalendarDays, query={"year": year})
    return found.items


def create_calendar(document: Mapping[str, Any]) -> Plan[Calendar]:
    """Define a calendar, written as in a file; `Conflict` if there is one of its name already."""
    return (yield from post("/calendars", document, Calendar))


def change_calendar(namespace: str, name: str, changes: Mapping[str, Any]) -> Plan[Calendar]:
    """Merge keys into a calendar; None takes one back to its default."""
    return (yield from send("PATCH", _path(namespace, name), Calendar, changes, repeatable=True))


def delete_calendar(namespace: str, name: str) -> Plan[None]:
    """Delete a calendar; `Conflict` while a schedule or another calendar uses it."""
    yield from answered(Request("DELETE", _path(namespace, name)))


def _path(namespace: str, name: str) -> str:
    return f"/calendars/{segment(namespace)}/{segment(name)}"
