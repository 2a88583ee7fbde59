"""Crontabs as jobs."""

from __future__ import annotations

from typing import Any

import pytest

from hetuflow_core.importers import Imported, as_yaml, import_crontab
from hetuflow_core.jobfile import load_documents, parse_documents

CRONTAB = """\
SHELL=/bin/bash
PATH="/usr/local/bin:/usr/bin"
MAILTO=ops@example.org
HETUFLOW_TASK_ID=x

# Nightly backup
# of the database
30 2 * * 1-5 /opt/backup.sh --full > /dev/null 2>&1
*/15 8-18 * jan,jul MON  cd /srv && ./report.py
CRON_TZ=Europe/Berlin
@daily   backup.sh
@reboot  start-things
0 9 1,15 * * mail -s "50\\% done" boss%Dear boss,%all is well.
61 * * * * broken
* * * *
"""


def imported(text: str, *, system: bool = False) -> list[Imported]:
    found = import_crontab(text, "tab", system=system, timezone="UTC")
    if any(one.document for one in found):
        load_documents(parse_documents(as_yaml(found), "yaml", "made"))
    return found


def document(one: Imported) -> dict[str, Any]:
    assert one.document is not None
    return one.document


def test_lines_become_jobs_with_what_stands_around_them() -> None:
    backup, report, daily, reboot, mail, broken, short = imported(CRONTAB)
    env = {"PATH": "/usr/local/bin:/usr/bin"}
    assert backup.document == {
        "kind": "job",
        "name": "backup",
        "run": {"script": "/opt/backup.sh --full > /dev/null 2>&1", "shell": "/bin/bash", "env": env},
        "schedules": [{"name": "cron", "cron": "30 2 * * 1-5", "timezone": "UTC", "misfire": "skip"}],
    }
    assert backup.comments == ("Nightly backup", "of the database")
    assert any("ops@example.org" in loss for loss in backup.losses)
    assert any("HETUFLOW_TASK_ID" in loss for loss in backup.losses)
    assert (document(report)["name"], report.comments) == ("report", ())
    assert document(report)["schedules"][0]["cron"] == "*/15 8-18 * jan,jul MON"
    assert document(daily)["name"] == "backup-2", "names are given once"
    assert document(daily)["schedules"][0]["cron"] == "0 0 * * *"
    assert document(daily)["schedules"][0]["timezone"] == "Europe/Berlin"
    assert "schedules" not in document(reboot)
    assert any("@reboot" in loss for loss in reboot.losses)
    assert document(mail)["run"]["script"] == (
        "{ mail -s \"50% done\" boss\n} <<'HETUFLOW_INPUT'\nDear boss,\nall is well.\nHETUFLOW_INPUT\n"
    )
    assert broken.document is None
    assert "61" in broken.losses[-1]
    assert short.document is None


@pytest.mark.parametrize(
    ("line", "user", "script"),
    [
        ("0 5 * * * root run-parts /etc/cron.daily", "root", "run-parts /etc/cron.daily"),
        ("@hourly  www-data  /usr/bin/php  cron.php", "www-data", "/usr/bin/php  cron.php"),
    ],
)
def test_lines_of_the_system_name_a_user(line: str, user: str, script: str) -> None:
    (one,) = imported(line, system=True)
    run: dict[str, Any] = document(one)["run"]
    assert (run["user"], run["script"], run["shell"]) == (user, script, "/bin/sh")


def test_comments_say_where_a_job_is_from_and_what_is_missing() -> None:
    text = as_yaml(imported("MAILTO=x\n# Why\n* * * * * true\n"))
    assert text.startswith("# Why\n# From tab:3.\n# Not carried over: mail to x")
