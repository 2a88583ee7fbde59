"""`schedules` in job files: read, refused with the place and a remedy, and written again."""

from __future__ import annotations

from datetime import UTC, datetime, time, timedelta
from time import process_time
from typing import Any

import pytest

from hetuflow_core.calendar import Weekday
from hetuflow_core.errors import Invalid
from hetuflow_core.jobfile import (
    JobSpec,
    digest,
    load_documents,
    parse_documents,
    raw_document,
    schedule_document,
    schedule_from_document,
    to_document,
)
from hetuflow_core.schedule import (
    Blackout,
    CalendarUse,
    DailyBlackout,
    Dst,
    Fold,
    Gap,
    Misfire,
    MisfirePolicy,
    Overlap,
    ScheduleSpec,
)
from hetuflow_core.states import ScheduleKind

JOB = {"kind": "job", "name": "x", "run": {"command": ["true"]}}
FILE = """
kind: job
name: x
run: {command: ["true"]}
schedules:
  - name: nightly
    cron: "0 2  * * *"
    timezone: Europe/Berlin
    dst: {gap: skip, fold: both}
    misfire: all(5)
    misfire_grace: 90s
    overlap: queue_one
    jitter: 30s
    start_at: 2026-01-01T00:00:00+01:00
    end_at: 2027-01-01T00:00:00Z
    max_count: 7
    calendar: {exclude: [holidays, blocked], include: workdays}
    blackout:
      - {from: "22:00", to: "24:00", weekdays: [Sunday, mon]}
      - {from: 2026-12-24T00:00:00Z, to: 2026-12-26T00:00:00Z}
    params: {who: world}
    priority: 700
    enabled: false
  - {name: every-5m, every: 5m, start_at: 2026-01-01T00:00:00Z, max_count: 100}
  - {name: once, at: 2026-12-31T23:59:00+01:00, calendar: holidays}
"""


def read_job(text: str) -> JobSpec:
    (spec,) = load_documents(parse_documents(text, "yaml", "jobs.yaml"))
    assert isinstance(spec, JobSpec)
    return spec


def faults(*schedules: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as caught:
        load_documents([raw_document({**JOB, "schedules": list(schedules)})])
    return {fault.field: fault.message for fault in caught.value.faults}


def test_all_keys_are_read() -> None:
    nightly, every, once = read_job(FILE).schedules
    assert nightly == ScheduleSpec(
        name="nightly",
        enabled=False,
        cron="0 2 * * *",
        timezone="Europe/Berlin",
        dst=Dst(gap=Gap.SKIP, fold=Fold.BOTH),
        start_at=datetime(2025, 12, 31, 23, tzinfo=UTC),
        end_at=datetime(2027, 1, 1, tzinfo=UTC),
        max_count=7,
        jitter=timedelta(seconds=30),
        calendar=CalendarUse(exclude=("blocked", "holidays"), include=("workdays",)),
        blackout=(
            DailyBlackout(start=time(22), end=time(0), weekdays=(Weekday.MON, Weekday.SUN)),
            Blackout(start=datetime(2026, 12, 24, tzinfo=UTC), end=datetime(2026, 12, 26, tzinfo=UTC)),
        ),
        misfire=Misfire(policy=MisfirePolicy.ALL, cap=5),
        misfire_grace=timedelta(seconds=90),
        overlap=Overlap.QUEUE_ONE,
        params={"who": "world"},
        priority=700,
    )
    assert every == ScheduleSpec(
        name="every-5m",
        every=timedelta(minutes=5),
        start_at=datetime(2026, 1, 1, tzinfo=UTC),
        max_count=100,
    )
    assert once == ScheduleSpec(
        name="once",
        at=datetime(2026, 12, 31, 22, 59, tzinfo=UTC),
        calendar=CalendarUse(exclude=("holidays",)),
    )
    assert [spec.kind for spec in (nightly, every, once)] == [
        ScheduleKind.CRON,
        ScheduleKind.TIME,
        ScheduleKind.TIME,
    ]


def test_what_is_written_reads_the_same() -> None:
    spec = read_job(FILE)
    for schedule in spec.schedules:
        assert schedule_from_document(schedule_document(schedule)) == schedule
    (again,) = load_documents([raw_document(to_document(spec))])
    assert again == spec


def test_a_version_of_the_job_knows_nothing_of_its_schedules() -> None:
    spec = read_job(FILE)
    bare = read_job(FILE.partition("schedules:")[0])
    assert spec.without_schedules() == bare
    assert digest(spec.without_schedules()) == digest(bare) != digest(spec)
    assert "schedules" not in to_document(bare)


@pytest.mark.parametrize(
    ("schedule", "field", "message"),
    [
        ({"cron": "@daily"}, "", '"name" is missing'),
        ({"name": "x"}, "", "nothing says when it fires: use cron, every, at, daemon, event or flow"),
        ({"name": "x", "cron": "@daily", "every": "5m"}, "", "cron and every exclude each other"),
        ({"name": "X", "cron": "@daily"}, "name", "is not allowed here"),
        ({"name": "x", "cron": "0 0 30 2 *"}, "cron", "this never fires: FEB has no day 30"),
        ({"name": "x", "cron": 5}, "cron", "must be text"),
        (
            {"name": "x", "cron": "@daily", "timezone": "Europe/Berlim"},
            "timezone",
            'did you mean "Europe/Berlin"',
        ),
        (
            {"name": "x", "cron": "@daily", "timezone": "europe/berlin"},
            "timezone",
            'did you mean "Europe/Berlin"',
        ),
        ({"name": "x", "cron": "@daily", "timezone": "berlin"}, "timezone", 'did you mean "Europe/Berlin"'),
        ({"name": "x", "cron": "@daily", "timezone": "UTC+2"}, "timezone", "is an offset, not a time zone"),
        ({"name": "x", "cron": "@daily", "timezone": "localtime"}, "timezone", "is not a known time zone"),
        (
            {"name": "x", "cron": "@daily", "timezone": "../etc/passwd"},
            "timezone",
            "is not a known time zone",
        ),
        ({"name": "x", "cron": "@daily", "timezone": "Europe"}, "timezone", "is not a known time zone"),
        ({"name": "x", "cron": "@daily", "dst": {"gap": "shfit"}}, "dst.gap", 'did you mean "shift"'),
        ({"name": "x", "cron": "@daily", "timezon": "UTC"}, "timezon", 'did you mean "timezone"'),
        ({"name": "x", "every": "500ms"}, "every", "must be between 1s and 3660d"),
        ({"name": "x", "every": "5"}, "every", "has no unit"),
        ({"name": "x", "every": "5m", "dst": {"gap": "skip"}}, "dst", "only cron follows wall clocks"),
        ({"name": "x", "at": "2026-12-31T23:59:00"}, "at", "has no offset: write 2026-12-31T23:59:00Z"),
        ({"name": "x", "at": "2026-02-30T00:00:00Z"}, "at", "is not an instant"),
        ({"name": "x", "at": "tomorrow"}, "at", "is not an instant"),
        ({"name": "x", "at": "2026-01-01T00:00:00.0001Z"}, "at", "finer than a millisecond"),
        ({"name": "x", "at": "1969-12-31T00:00:00Z"}, "at", "the year must be"),
        ({"name": "x", "at": "2026-12-31T23:59:00Z", "max_count": 1}, "max_count", "fires once"),
        (
            {
                "name": "x",
                "cron": "@daily",
                "start_at": "2026-02-01T00:00:00Z",
                "end_at": "2026-01-01T00:00:00Z",
            },
            "end_at",
            "is not after start_at",
        ),
        (
            {
                "name": "x",
                "cron": "@yearly",
                "start_at": "2026-02-01T00:00:00Z",
                "end_at": "2026-03-01T00:00:00Z",
            },
            "end_at",
            "never fires between",
        ),
        ({"name": "x", "cron": "@daily", "max_count": 0}, "max_count", "must be between"),
        ({"name": "x", "cron": "@daily", "jitter": "2d"}, "jitter", "must be between 0s and 1d"),
        ({"name": "x", "cron": "@daily", "misfire": "lates"}, "misfire", 'did you mean "latest"'),
        ({"name": "x", "cron": "@daily", "misfire": "all(0)"}, "misfire", "keeps between 1 and 10000"),
        ({"name": "x", "cron": "@daily", "overlap": "queue"}, "overlap", "is not a known value"),
        ({"name": "x", "cron": "@daily", "priority": 1001}, "priority", "must be between"),
        ({"name": "x", "cron": "@daily", "calendar": "Not A Name"}, "calendar", "is not allowed here"),
        (
            {"name": "x", "cron": "@daily", "calendar": {"exclude": ["a"], "include": ["a"]}},
            "calendar",
            "a is both excluded and included",
        ),
        (
            {"name": "x", "cron": "@daily", "blackout": [{"from": "22:00"}]},
            "blackout[0]",
            "needs from and to",
        ),
        (
            {"name": "x", "cron": "@daily", "blackout": [{"from": "22:00", "to": "25:00"}]},
            "blackout[0].to",
            "is no time of day",
        ),
        (
            {"name": "x", "cron": "@daily", "blackout": [{"from": "22:00", "to": "22:00"}]},
            "blackout[0].to",
            "is the same as from",
        ),
        (
            {
                "name": "x",
                "cron": "@daily",
                "blackout": [{"from": "22:00", "to": "23:00", "weekdays": ["monkey"]}],
            },
            "blackout[0].weekdays[0]",
            "is not a weekday",
        ),
        (
            {
                "name": "x",
                "cron": "@daily",
                "blackout": [{"from": "2026-01-02T00:00:00Z", "to": "2026-01-01T00:00:00Z"}],
            },
            "blackout[0].to",
            "is not after from",
        ),
    ],
)
def test_what_is_refused(schedule: dict[str, Any], field: str, message: str) -> None:
    found = faults(schedule)
    place = f"schedules[0].{field}" if field else "schedules[0]"
    assert message in found[place]
    assert found[place][-1] in ".?"


def test_all_faults_are_told_at_once() -> None:
    found = faults(
        {"name": "a", "cron": "61 * * * *", "timezone": "Nowhere/Land"},
        {"name": "b", "every": "0s"},
        {"name": "c", "cron": "@daily"},
        {"name": "c", "cron": "@hourly"},
    )
    assert list(found) == ["schedules[0].cron", "schedules[0].timezone", "schedules[1].every", "schedules[3]"]
    assert found["schedules[3]"] == 'the schedule "c" is written twice: rename one of them.'


def test_instants_of_toml_are_those_of_yaml() -> None:
    text = """
    kind = "job"
    name = "x"
    run = {command = ["true"]}
    [[schedules]]
    name = "once"
    at = 2026-12-31T23:59:00.5+01:00
    """
    (spec,) = load_documents(parse_documents(text, "toml", "jobs.toml"))
    assert isinstance(spec, JobSpec)
    assert spec.schedules[0].at == datetime(2026, 12, 31, 22, 59, 0, 500_000, tzinfo=UTC)


def test_the_place_in_the_file_is_told() -> None:
    with pytest.raises(Invalid) as caught:
        read_job(FILE.replace("Europe/Berlin", "Europe/Paname"))
    assert caught.value.faults[0].field == "jobs.yaml:8:5 schedules[0].timezone"


@pytest.mark.parametrize(
    "when",
    [
        {"cron": "0 0 30 2 *"},
        {"cron": "0 0 31 2,4,6,9,11 *"},
        {"cron": "1-59/1," * 300 + "1 * * * *"},
        {"cron": "0 0 29 2 *", "start_at": "2097-03-01T00:00:00Z", "end_at": "2099-01-01T00:00:00Z"},
        {"cron": "* * * * *", "timezone": "Europe/Berln"},
        {"cron": "* * * * *", "timezone": "x" * 5000},
    ],
    ids=lambda when: " ".join(when.values())[:40],
)
def test_what_never_fires_or_means_nothing_is_refused_without_a_search(when: dict[str, Any]) -> None:
    """Within fifty milliseconds of a core; the best of three, as others use it too."""
    spent = []
    for _ in range(3):
        begun = process_time()
        with pytest.raises(Invalid) as refused:
            schedule_from_document({"name": "s", **when})
        spent.append(process_time() - begun)
        assert refused.value.faults
    assert min(spent) < 0.05
