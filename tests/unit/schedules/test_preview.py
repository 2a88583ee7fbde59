"""What is shown of what comes: so many fires, and runs of skipped ones as one."""

from __future__ import annotations

import sys
from datetime import UTC, datetime, time, timedelta
from uuid import UUID

from hetuflow_core.schedule import DailyBlackout, ScheduleSpec, upcoming
from hetuflow_core.schedule.preview import preview
from tests.support.processes.processes import clean_environment, run

ID = UUID(int=1)
START = datetime(2026, 1, 1, 21, 59, tzinfo=UTC)
NIGHTS = DailyBlackout(start=time(22), end=time(6))


def test_runs_of_skipped_fires_are_told_once() -> None:
    spec = ScheduleSpec(name="x", every=timedelta(minutes=30), blackout=(NIGHTS,), timezone="UTC")
    shown = preview(upcoming(spec, ID, {}, START), 2)
    assert [(one.fire_at.hour, one.times, one.skip is None) for one in shown] == [
        (22, 16, False),
        (6, 1, True),
        (6, 1, True),
    ]
    assert shown[0].last_fire_at == datetime(2026, 1, 2, 5, 30, tzinfo=UTC)


def test_nobody_waits_for_a_schedule_that_never_fires() -> None:
    always = DailyBlackout(start=time(0), end=time(0))
    spec = ScheduleSpec(name="x", every=timedelta(seconds=1), blackout=(always,))
    (one,) = preview(upcoming(spec, ID, {}, START), 5, most_examined=1000)
    assert (one.times, one.skip is None) == (1000, False)


def test_a_schedule_that_ends_says_so_last() -> None:
    spec = ScheduleSpec(name="x", every=timedelta(hours=1), max_count=2)
    shown = preview(upcoming(spec, ID, {}, START), 10)
    assert [one.skip and one.skip.code.value for one in shown] == [None, None, "max_count"]


def test_job_files_without_cron_expressions_are_read_without_loading_holidays_or_croniter() -> None:
    """Both take long to load."""
    code = (
        "import sys; from hetuflow_core.jobfile import schedule_from_document as read; "
        "read({'name': 'x', 'every': '1h', 'calendar': 'closed'}); "
        "print(*({'holidays', 'croniter', 'dateutil'} & {*sys.modules}))"
    )
    result = run([sys.executable, "-c", code], env=clean_environment())
    assert (result.stdout, result.stderr) == ("\n", "")
