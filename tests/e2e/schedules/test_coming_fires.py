"""What comes of schedules, over REST and by command."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import uuid4

from tests.e2e.conftest import System
from tests.support.processes.processes import HETUFLOW, run


def test_what_comes_is_shown_by_rest_and_by_command(lone_server: System) -> None:
    client, name = lone_server.client, f"weekend-{uuid4().hex[:8]}"
    client.create_calendar({"name": name, "weekdays": ["sat", "sun"]})
    schedules = [
        {"name": "nightly", "cron": "30 2 * * *", "timezone": "Europe/Berlin", "calendar": name},
        {"name": "once", "at": "2030-03-30T00:00:00Z"},
    ]
    job = lone_server.apply(run={"command": ["true"]}, schedules=schedules)
    after = "2030-03-28T12:00:00Z"
    shown = run(
        [*HETUFLOW, "job", "next", job.name, "--count", "3", "--after", after], env=lone_server.environment()
    )
    assert shown.stdout.splitlines()[1:] == [
        "nightly   2030-03-29T02:30:00+01:00  2030-03-29T01:30:00Z  -",
        "once      2030-03-30T00:00:00+00:00  2030-03-30T00:00:00Z  -",
        (
            "nightly   2030-03-30T02:30:00+01:00  2030-03-30T01:30:00Z  "
            f"2030-03-30 (sat) is excluded by the calendar {name}"
        ),
        # The night clocks change: the gap is over at three.
        (
            "nightly   2030-03-31T03:00:00+02:00  2030-03-31T01:00:00Z  "
            f"2030-03-31 (sun) is excluded by the calendar {name}"
        ),
        "nightly   2030-04-01T02:30:00+02:00  2030-04-01T00:30:00Z  -",
    ], shown.stderr
    which = f"{job.name}/nightly"
    listed = run(
        [*HETUFLOW, "schedule", "next", which, "--count", "1", "--after", after, "-o", "json"],
        env=lone_server.environment(),
    )
    (fire,) = json.loads(listed.stdout)
    assert (fire["fire_at"], fire["skipped"]) == ("2030-03-29T01:30:00Z", None)
    by_client = client.coming_fires(fire["schedule_id"], count=1, after=datetime(2030, 3, 28, 12, tzinfo=UTC))
    assert by_client[0].fire_at == datetime(2030, 3, 29, 1, 30, tzinfo=UTC)
    problem = lone_server.get(f"/api/v1/jobs/{job.id}/next?count=0").json()
    assert problem["status"] == 422
