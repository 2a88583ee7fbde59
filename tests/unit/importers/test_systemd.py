"""systemd timers as jobs; instants are those of `systemd-analyze calendar`."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from itertools import islice

import pytest

from hetuflow_core.importers import as_yaml, import_timers
from hetuflow_core.importers.systemd_calendar import Untranslatable, calendar_time
from hetuflow_core.importers.unit_files import parse_span
from hetuflow_core.jobfile import load_documents, parse_documents, schedule_from_document
from hetuflow_core.schedule import occurrences

# Expression, cron, days of the week beside it, and the first two instants after 2026-07-01 00:00 UTC as
# systemd tells them.
GOLDEN = [
    ("daily", "0 0 * * *", "", "2026-07-02 00:00:00", "2026-07-03 00:00:00"),
    ("minutely", "* * * * *", "", "2026-07-01 00:01:00", "2026-07-01 00:02:00"),
    ("weekly", "0 0 * * MON", "", "2026-07-06 00:00:00", "2026-07-13 00:00:00"),
    ("quarterly", "0 0 1 1,4,7,10 *", "", "2026-10-01 00:00:00", "2027-01-01 00:00:00"),
    ("semiannually", "0 0 1 1,7 *", "", "2027-01-01 00:00:00", "2027-07-01 00:00:00"),
    ("Mon..Fri 09:00", "0 9 * * MON,TUE,WED,THU,FRI", "", "2026-07-01 09:00:00", "2026-07-02 09:00:00"),
    ("Sat,Sun 12:00", "0 12 * * SAT,SUN", "", "2026-07-04 12:00:00", "2026-07-05 12:00:00"),
    ("*-*-* 0/2:00", "0 */2 * * *", "", "2026-07-01 02:00:00", "2026-07-01 04:00:00"),
    ("*:0/15", "*/15 * * * *", "", "2026-07-01 00:15:00", "2026-07-01 00:30:00"),
    ("*-*-01,15 03:30", "30 3 1,15 * *", "", "2026-07-01 03:30:00", "2026-07-15 03:30:00"),
    ("*-01..03-* 00:00", "0 0 * 1-3 *", "", "2027-01-01 00:00:00", "2027-01-02 00:00:00"),
    ("*-*-1/3 00:00", "0 0 */3 * *", "", "2026-07-04 00:00:00", "2026-07-07 00:00:00"),
    ("*-*-* 02..05:00", "0 2-5 * * *", "", "2026-07-01 02:00:00", "2026-07-01 03:00:00"),
    ("*-*-* 01:30:15", "15 30 1 * * *", "", "2026-07-01 01:30:15", "2026-07-02 01:30:15"),
    ("*-*-* *:*:0/30", "*/30 * * * * *", "", "2026-07-01 00:00:30", "2026-07-01 00:01:00"),
    ("10-15", "0 0 15 10 *", "", "2026-10-15 00:00:00", "2027-10-15 00:00:00"),
    ("*-*~01 01:00", "0 1 L * *", "", "2026-07-31 01:00:00", "2026-08-31 01:00:00"),
    ("Mon 00:00:00 Europe/Berlin", "0 0 * * MON", "", "2026-07-05 22:00:00", "2026-07-12 22:00:00"),
    ("Mon *-*-01..07 02:00:00", "0 2 1-7 * *", "mon", "2026-07-06 02:00:00", "2026-08-03 02:00:00"),
]


@pytest.mark.parametrize(("expression", "cron", "days", "first", "second"), GOLDEN)
def test_calendar_expressions(expression: str, cron: str, days: str, first: str, second: str) -> None:
    time = calendar_time(expression)
    assert (time.cron, ",".join(time.weekdays)) == (cron, days)
    spec = schedule_from_document({"name": "a", "cron": time.cron, "timezone": time.timezone or "UTC"})
    names = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")
    fires = (
        at
        for at in occurrences(spec, datetime(2026, 7, 1, tzinfo=UTC))
        if not days or names[at.weekday()] in time.weekdays
    )
    assert [f"{at:%Y-%m-%d %H:%M:%S}" for at in islice(fires, 2)] == [first, second]


@pytest.mark.parametrize(
    "expression",
    [
        *("2027-*-01 00:00", "*-02~03", "*-*-* 00:00:00.5", "Mon 2027-01-01", "whenever", "25:00"),
        # Neither can systemd.
        *("Fri..Mon", "Sun-Tue 10:00", "Tues", "Monkey", "*:5..2", "*-5..2-* 00:00"),
    ],
)
def test_what_cron_cannot_say_is_refused(expression: str) -> None:
    with pytest.raises(Untranslatable):
        calendar_time(expression)


def test_one_instant_is_no_cron() -> None:
    assert calendar_time("2027-03-05 08:05").at == "2027-03-05T08:05:00"


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        *[("5min 20s", 320), ("1h", 3600), ("90", 90), ("1w", 604800), ("2.5s", 2.5)],
        *[("infinity", None), ("x", None)],
    ],
)
def test_spans_of_time(text: str, seconds: float | None) -> None:
    assert parse_span(text) == (None if seconds is None else timedelta(seconds=seconds))


def test_drop_ins_add_and_take_back() -> None:
    files = {
        "d/a-b.timer": "[Timer]\nOnCalendar=daily\n",
        "d/a-b.timer.d/time.conf": "[Timer]\nOnCalendar=\nOnCalendar=hourly\nPersistent=yes\n",
        "d/a-b.service": "[Service]\nExecStart=/bin/a\nUser=one\n",
        "d/a-b.service.d/20-late.conf": "Nice=3\n[Service]\nUser=two\n",
        "d/a-b.service.d/10-early.conf": "[Service]\nExecStart=\nExecStart=/bin/b\nUser=early\n",
        "d/a-.service.d/20-late.conf": "[Service]\nUser=hidden by its namesake\n",
        "d/a-.service.d/30-named-after.conf": "[Service]\nEnvironment=A=1\n",
        "d/service.d/00-all.conf": "[Service]\nEnvironment=B=2\n",
        "d/other.service.d/99.conf": "[Service]\nUser=other\n",
        "d/a-b.service.d/99.txt": "[Service]\nUser=no drop-in\n",
    }
    (job,) = import_timers(files, timezone="UTC")
    assert job.document is not None
    assert job.document["run"] == {"command": ["/bin/b"], "env": {"A": "1", "B": "2"}, "user": "two"}
    (schedule,) = job.document["schedules"]
    assert (schedule["cron"], schedule["misfire"]) == ("0 * * * *", "latest")
    assert not [loss for loss in job.losses if "Nice" in loss], "above any section it says nothing"


def test_specifiers_are_named_wherever_they_stand() -> None:
    service = (
        "[Service]\nExecStart=/bin/a %n 5%%n\nEnvironment=HOME=%h RATE=5%%\nEnvironmentFile=-/etc/%p\n"
        "User=%i\nWorkingDirectory=/home/%i\nSyslogIdentifier=%N\nNice=%j\n"
    )
    (job,) = import_timers({"a.timer": "[Timer]\nOnCalendar=daily", "a.service": service}, timezone="UTC")
    told = [loss.partition(",")[0] for loss in job.losses if "specifier" in loss]
    assert told == [
        "the specifier %h in Environment",
        "the specifier %i in User",
        "the specifier %n in ExecStart",
        "the specifier %p in EnvironmentFile",
    ]
    assert any("%i in User, WorkingDirectory, " in loss for loss in job.losses)
    assert job.document is not None
    assert job.document["run"]["env"] == {"HOME": "%h", "RATE": "5%"}


TIMER = """\
[Unit]
Description=Backup of the database
[Timer]
OnCalendar=Mon..Fri 02:00
OnCalendar=Mon *-*-01..07 04:00
OnCalendar=2027-*-01 00:00
RandomizedDelaySec=10min
Persistent=true
WakeSystem=yes
[Install]
WantedBy=timers.target
"""
SERVICE = """\
[Unit]
Description=Backup
StartLimitBurst=3
[Service]
Type=oneshot
# what it does
Environment="GREETING=hello world" LEVEL=3
EnvironmentFile=-/etc/default/backup
ExecStartPre=-/usr/bin/mkdir /backup
ExecStart=/usr/bin/pg_dump --file=/backup/$NAME.sql \\
  --verbose
ExecStart=+/usr/bin/sync
User=backup
WorkingDirectory=/var/lib/backup
TimeoutStartSec=1h
Restart=on-failure
RestartSec=30s
MemoryMax=512M
CPUQuota=150%
PrivateTmp=true
"""


def test_a_timer_with_its_service() -> None:
    found = import_timers({"d/backup.timer": TIMER, "d/backup.service": SERVICE}, timezone="Europe/Berlin")
    load_documents(parse_documents(as_yaml(found), "yaml", "made"))
    calendar, job = found
    assert calendar.document == {"kind": "calendar", "name": "only-mon", "weekdays": ["mon"]}
    shared = {"overlap": "skip", "misfire": "latest", "jitter": "10m", "timezone": "Europe/Berlin"}
    assert job.document == {
        "kind": "job",
        "name": "backup",
        "run": {
            "script": "set -e\n"
            "if [ -r /etc/default/backup ]; then set -a; . /etc/default/backup; set +a; fi\n"
            "/usr/bin/mkdir /backup || true\n"
            '/usr/bin/pg_dump "--file=/backup/$NAME.sql" --verbose\n'
            "/usr/bin/sync\n",
            "shell": "/bin/sh",
            "env": {"GREETING": "hello world", "LEVEL": "3"},
            "user": "backup",
            "workdir": "/var/lib/backup",
        },
        "timeout": "1h",
        "retry": {"max_attempts": 3, "backoff": "fixed", "delay": "30s", "jitter": False},
        "placement": {"resources": {"memory": "512Mi", "cpu": 1.5}},
        "schedules": [
            {"name": "timer-1", "cron": "0 2 * * MON,TUE,WED,THU,FRI", **shared},
            {"name": "timer-2", "cron": "0 4 1-7 * *", "calendar": {"include": ["only-mon"]}, **shared},
        ],
    }
    assert job.comments == ("Backup of the database",)
    told = "\n".join(job.losses)
    for lost in ("2027-*-01", "WakeSystem=yes", "PrivateTmp=true", "(+)", "run tasks as backup"):
        assert lost in told


def test_a_plain_service_stays_a_command_and_intervals_are_intervals() -> None:
    files = {
        "tick.timer": "[Timer]\nOnBootSec=5min\nOnUnitActiveSec=1h 30min\nUnit=tock.service\n",
        "tock.service": '[Service]\nExecStart=/usr/bin/echo "a b" 100%% %i\n',
        "lone.timer": "[Timer]\nOnCalendar=daily\n",
    }
    tick, lone = import_timers(files, timezone="UTC")
    assert tick.document == {
        "kind": "job",
        "name": "tick",
        "run": {"command": ["/usr/bin/echo", "a b", "100%", "%i"]},
        "schedules": [{"name": "timer", "every": "1h30m", "overlap": "skip", "misfire": "skip"}],
    }
    assert any("OnBootSec" in loss for loss in tick.losses)
    assert any("%i" in loss for loss in tick.losses)
    assert lone.document is None
    assert "lone.service" in lone.losses[0]
