"""Calendars over REST and by command."""

from __future__ import annotations

import json
from datetime import date
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from hetuflow_core.errors import Conflict, NotFound
from tests.e2e.conftest import System
from tests.support.processes.processes import HETUFLOW, run


def hetuflow(system: System, *arguments: str) -> str:
    result = run([*HETUFLOW, *arguments], env=system.environment())
    assert result.returncode == 0, result.stderr
    return result.stdout


def test_a_calendar_from_its_file_to_its_end(lone_server: System, tmp_path: Path) -> None:
    name = f"closed-{uuid4().hex[:8]}"
    file = tmp_path / "calendar.yaml"
    file.write_text(
        f"kind: calendar\nname: {name}\nholidays: [DE-BY]\nweekdays: [sat, sun]\nexcept: [2026-12-26]\n"
    )
    assert "created, version 1" in hetuflow(lone_server, "apply", "-f", str(file))
    assert name in hetuflow(lone_server, "calendar", "list", "-q").split()
    days = json.loads(hetuflow(lone_server, "calendar", "days", name, "--year", "2026", "-o", "json"))
    assert {"date": "2026-01-06", "why": "Epiphany"} in days
    assert "2026-12-26" not in {day["date"] for day in days}
    shown = hetuflow(lone_server, "calendar", "get", name)
    assert "DE-BY" in shown
    hetuflow(lone_server, "calendar", "delete", name)
    with pytest.raises(NotFound):
        lone_server.client.calendar("default", name)


def test_the_client_does_all_of_it(lone_server: System) -> None:
    client, name = lone_server.client, f"weekend-{uuid4().hex[:8]}"
    made = client.create_calendar({"name": name, "weekdays": ["sat"]})
    assert (made.namespace, made.name, made.version) == ("default", name, 1)
    with pytest.raises(Conflict):
        client.create_calendar({"name": name, "weekdays": ["sat"]})
    assert client.change_calendar("default", name, {"weekdays": ["sat", "sun"]}).version == 2
    days = client.calendar_days("default", name, 2026)
    assert [(day.date, day.why) for day in days[:2]] == [(date(2026, 1, 3), "sat"), (date(2026, 1, 4), "sun")]
    assert name in {one.name for one in client.calendars(namespace="default", page_size=1)}
    client.delete_calendar("default", name)
    assert lone_server.get(f"/api/v1/calendars/default/{name}").json()["code"] == "calendar.not_found"


def test_what_somebody_else_has_changed_meanwhile_is_not_overwritten(lone_server: System) -> None:
    name = f"weekend-{uuid4().hex[:8]}"
    lone_server.client.create_calendar({"name": name, "weekdays": ["sat"]})
    path = f"/api/v1/calendars/default/{name}"
    url, credential = f"{lone_server.url}{path}", {"Authorization": f"Bearer {lone_server.api_key}"}
    read = lone_server.get(path).headers["ETag"]
    guarded = {**credential, "If-Match": read}
    first = httpx.patch(url, json={"weekdays": ["sat", "sun"]}, headers=guarded)
    assert (first.status_code, first.json()["version"]) == (200, 2)
    assert first.headers["ETag"] != read
    late = httpx.patch(url, json={"weekdays": ["fri"]}, headers=guarded)
    assert (late.status_code, late.json()["code"]) == (412, "stale")
    assert lone_server.client.calendar("default", name).spec["weekdays"] == ["sat", "sun"]
    again = httpx.patch(
        url, json={"weekdays": ["fri"]}, headers={**credential, "If-Match": first.headers["ETag"]}
    )
    assert again.json()["version"] == 3
    lone_server.client.delete_calendar("default", name)
