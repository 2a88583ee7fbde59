"""A task's end as an exit code and as a line."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest

from hetuflow_core.resources.tasks import TaskDetail, TaskInstance
from hetuflow_core.states import TASK_TERMINAL
from hetuflow_server.cli.task_exit_code import EXPLAINED, MEANINGS, exit_code_of, final_line

ID = UUID("01890f3e-7b3c-7cc0-98c4-dc0c0c07398f")
AT = datetime(2026, 7, 1, tzinfo=UTC)


def an_instance(**changes: Any) -> TaskInstance:
    values: dict[str, Any] = dict.fromkeys(TaskInstance.__struct_fields__)
    values |= {"id": ID, "task_id": ID, "seq": 1, "attempt": 1, "status": "failed", "priority": 500}
    values |= {"due_at": AT, "cancel_requested": False, "started_at": AT}
    return TaskInstance(**{**values, **changes})


def a_task(*instances: TaskInstance, **changes: Any) -> TaskDetail:
    values: dict[str, Any] = dict.fromkeys(TaskDetail.__struct_fields__)
    values |= {"id": ID, "namespace": "default", "job": "etl", "job_id": ID, "job_version": 1}
    values |= {"status": "failed", "params": {}, "priority": 500, "fire_at": AT, "due_at": AT}
    values |= {"attempts": 1, "losses": 0, "created_at": AT, "finished_at": AT + timedelta(seconds=1.26)}
    return TaskDetail(**{**values, **changes, "instances": list(instances)})


@pytest.mark.parametrize(
    ("task", "code"),
    [
        (a_task(status="succeeded", exit_code=0), 0),
        (a_task(status="skipped", exit_code=42), 0),
        (a_task(status="cancelled"), 143),
        (a_task(status="cancelled", exit_code=0), 143),
        (a_task(an_instance(exit_code=3), exit_code=3), 3),
        (a_task(an_instance(exit_code=3)), 3),
        (a_task(an_instance(exit_code=3), an_instance(exit_code=4)), 4),
        (a_task(an_instance(exit_code=255), exit_code=255), 255),
        (a_task(an_instance(exit_code=0), exit_code=0), 1),
        (a_task(an_instance(exit_code=256), exit_code=256), 1),
        (a_task(an_instance(exit_code=-9), exit_code=-9), 1),
        (a_task(an_instance(signal=9)), 137),
        (a_task(an_instance(signal=15, exit_code=143), exit_code=143), 143),
        (a_task(an_instance(status="timed_out", signal=15)), 124),
        (a_task(an_instance(status="timed_out", exit_code=0)), 124),
        (a_task(an_instance(status="lost"), reason="quarantined"), 1),
        (a_task(), 1),
    ],
)
def test_exit_codes(task: TaskDetail, code: int) -> None:
    assert exit_code_of(task) == code


@pytest.mark.parametrize("status", sorted(TASK_TERMINAL))
def test_only_what_went_well_exits_with_zero(status: str) -> None:
    assert (exit_code_of(a_task(an_instance(), status=status)) == 0) == (status in {"succeeded", "skipped"})


def test_every_fixed_code_is_explained() -> None:
    assert {"0", "124", "130", "143"} <= set(re.findall(r"\b\d+\b", EXPLAINED))


@pytest.mark.parametrize(
    ("task", "line"),
    [
        (a_task(status="succeeded"), "succeeded (1.2s)."),
        (a_task(an_instance(exit_code=3), attempts=2), "failed after 2 attempts (1.2s): exit code 3."),
        (
            a_task(an_instance(signal=9, reason="signal", message="It was killed.")),
            "failed (1.2s): signal 9, signal, It was killed.",
        ),
        (a_task(an_instance(status="timed_out", signal=15)), "failed (1.2s): timed out."),
        (a_task(status="cancelled", finished_at=None), "cancelled."),
        (a_task(finished_at=AT + timedelta(minutes=61, seconds=1.5)), "failed (1h1m1s): unknown reason."),
        (a_task(status="skipped", reason="overlap", finished_at=AT), "skipped (0s): overlap."),
    ],
)
def test_final_line(task: TaskDetail, line: str) -> None:
    assert final_line(task) == f"Task {ID} of default/etl {line}"


def test_the_guide_tells_of_every_code() -> None:
    guide = (Path(__file__).parents[3] / "docs/howto/commands.md").read_text(encoding="utf-8")
    for code, meaning in MEANINGS.items():
        assert f"| {code} | {meaning} |" in guide
        assert f"  {code:<9} {meaning}" in EXPLAINED
