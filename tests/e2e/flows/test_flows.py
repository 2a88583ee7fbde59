"""Flows on a real system: the example runs, with its conditions, maps and outputs."""

from __future__ import annotations

from pathlib import Path

import psycopg
import pytest

from hetuflow_core.errors import Conflict, NotFound
from tests.e2e.conftest import System
from tests.support.processes.processes import HETUFLOW, run
from tests.support.waiting import wait_until

EXAMPLE = Path(__file__).parents[3] / "examples/flow.yaml"


def test_the_example_runs(system: System) -> None:
    applied = run([*HETUFLOW, "apply", "-f", str(EXAMPLE)], env=system.environment())
    assert applied.returncode == 0, applied.stderr
    job = system.client.job("default", "etl")
    task = system.client.wait(system.client.run(job.id, params={"day": "friday"}).id, timeout=120)
    assert task.status == "succeeded"
    with psycopg.connect(system.database_url) as rows:
        nodes = dict(
            rows.execute(
                "SELECT node, status FROM sched_flow_node WHERE flow_run_id = %s", [task.id]
            ).fetchall()
        )
        (load,) = rows.execute(
            "SELECT i.id FROM sched_task t JOIN sched_task_instance_history i ON i.task_id = t.id "
            "WHERE t.flow_run_id = %s AND t.flow_node = 'load'",
            [task.id],
        ).fetchone() or [None]
        left = rows.execute("SELECT count(*) FROM sched_flow_advance").fetchone()
    assert nodes == {"extract": "succeeded", "clean": "succeeded", "approve": "skipped", "load": "succeeded"}
    log = system.get(f"/api/v1/task-instances/{load}/logs").text
    assert "loading 3 files of friday" in log
    assert left == (0,)


def command(system: System, *arguments: str) -> str:
    done = run([*HETUFLOW, "flow", *arguments], env=system.environment())
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_people_watch_and_decide(system: System) -> None:
    work = {"run": {"command": ["echo", "done"]}}
    nodes = [
        {"name": "first", **work},
        {"name": "ask", "needs": ["first"], "approval": {"approvers": ["role:admin"]}},
        {"name": "slow", "needs": ["first"], "run": {"command": ["sleep", "300"]}, "kill_grace": "1s"},
        {"name": "last", "needs": ["ask", "slow"], **work},
    ]
    job = system.apply(flow={"nodes": nodes})
    task = system.client.run(job.id)

    def standing() -> dict[str, str]:
        return {node.name: node.status for node in system.client.flow_run(task.id).nodes}

    wait_until(
        lambda: list(system.client.flow_runs(job=job.name)) and standing().get("ask") == "running",
        timeout=60,
        what="the approval to be asked for",
    )
    drawn = command(system, "graph", str(task.id)).splitlines()
    assert [line.split()[0] for line in drawn] == ["✔", "├─╮", "●", "│", "├─╯", "○"]
    assert "waits for approval by role:admin" in drawn[2]
    assert "approved" in command(system, "approve", str(task.id), "ask", "-m", "Go.")
    assert "by_hand" in command(system, "mark-success", str(task.id), "slow")
    ended = system.client.wait(task.id, timeout=90)
    assert ended.status == "succeeded"
    shown = command(system, "get", str(task.id))
    assert "Go." in shown
    assert command(system, "list", "--job", job.name, "-q").split() == [str(task.id)]
    listed = list(system.client.flow_tasks(task.id, node="slow"))
    assert [(one.status, one.id) for one in listed] == [
        ("cancelled", system.client.flow_run(task.id).nodes[2].task_id)
    ]
    with pytest.raises(Conflict, match="Nothing of this run failed"):
        system.client.retry_flow(task.id)
    with pytest.raises(NotFound):
        system.client.flow_run(job.id)
    again = system.client.retry_flow(task.id, whole=True)
    wait_until(lambda: len(list(system.client.flow_runs(job=job.name))) > 1, timeout=60, what="a new run")
    command(system, "cancel", str(again.id))
    assert system.client.wait(again.id, timeout=90).status == "cancelled"
