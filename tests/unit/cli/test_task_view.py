"""How a task is shown: results that came too late stand beside what counts."""

from __future__ import annotations

from datetime import UTC, datetime
from uuid import UUID

from msgspec import structs

from hetuflow_core.resources.tasks import LateResult
from hetuflow_server.cli.output.layout import Table
from hetuflow_server.cli.output.tasks import details
from tests.unit.cli.test_task_exit_code import a_task, an_instance

LATE = LateResult(UUID(int=7), "spot", datetime(2026, 7, 1, tzinfo=UTC), "failed", 3, reason="x", message="y")


def test_what_came_too_late_is_shown_with_who_said_it() -> None:
    task = a_task(an_instance(), late_results=[])
    plain = details(task)
    *same, late = details(structs.replace(task, late_results=[LATE]))
    assert same == plain
    assert isinstance(late, Table)
    assert late.rows == [[LATE.reported_at, str(LATE.instance_id), "failed", "spot", 3, None, "x, y"]]
