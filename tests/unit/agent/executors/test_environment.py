from __future__ import annotations

from pathlib import Path
from uuid import UUID

from hetuflow_agent.executors.environment import base_environment, task_environment
from hetuflow_agent.folders.workdir import ClaimDirectory
from tests.support.agent.assignments import assignment_of

AGENT = {
    "PATH": "/opt/bin:/bin",
    "HOME": "/home/flow",
    "LC_ALL": "C.UTF-8",
    "HETUFLOW_AGENT__TOKEN": "hunter2",
    "AWS_SECRET_ACCESS_KEY": "hunter2",
    "PYTHONPATH": "/agent/lib",
}


def test_only_what_is_listed_passes() -> None:
    assert base_environment(AGENT) == {"PATH": "/opt/bin:/bin", "HOME": "/home/flow", "LC_ALL": "C.UTF-8"}


def test_there_is_always_a_path() -> None:
    assert "/usr/bin" in base_environment({})["PATH"].split(":")


def test_a_task_is_told_who_it_is_and_a_job_cannot_forge_it() -> None:
    assignment = assignment_of(
        ["true"], env={"HOME": "/data", "MODE": "fast", "HETUFLOW_JOB": "forged"}, fire_at=1_780_315_200_250
    )
    directory = ClaimDirectory(Path("/data/instances/x-1"))
    env = task_environment(base_environment(AGENT), assignment, directory)
    assert env == {
        "PATH": "/opt/bin:/bin",
        "HOME": "/data",
        "LC_ALL": "C.UTF-8",
        "MODE": "fast",
        "HETUFLOW_TASK_ID": str(assignment.task_id),
        "HETUFLOW_INSTANCE_ID": str(assignment.instance_id),
        "HETUFLOW_ATTEMPT": "2",
        "HETUFLOW_SCHEDULED_AT": "2026-06-01T12:00:00.250Z",
        "HETUFLOW_NAMESPACE": "default",
        "HETUFLOW_JOB": "nightly",
        "HETUFLOW_OUTPUT": "/data/instances/x-1/output",
        "HETUFLOW_PROGRESS": "/data/instances/x-1/progress",
        "TRACEPARENT": assignment.traceparent,
    }
    assert UUID(env["HETUFLOW_INSTANCE_ID"])


def test_a_daemon_is_told_which_of_its_lives_it_is() -> None:
    directory = ClaimDirectory(Path("/data/instances/x-1"))
    for slot, told in ((0, "0"), (None, None)):
        env = task_environment({}, assignment_of(["true"], slot=slot), directory)
        assert env.get("HETUFLOW_SLOT") == told
