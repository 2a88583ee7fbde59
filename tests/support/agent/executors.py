"""Executors by themselves: what an agent would give them, and a folder for one claim."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec

from hetuflow_agent.executors.interface import ExecutorHost
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.settings import HostSettings
from hetuflow_core.messages import Assignment, RunSpec
from hetuflow_core.runtime.config.keys import SecretText
from tests.support.agent.assignments import assignment_of


def host_settings(data_dir: Path, **settings: Any) -> HostSettings:
    needed: dict[str, Any] = {
        "name": "worker",
        "token": SecretText("token"),
        "data_dir": data_dir,
        "slots": 4,
    }
    return HostSettings(**{**needed, **settings})


def executor_host(data_dir: Path, **settings: Any) -> ExecutorHost:
    return ExecutorHost(host_settings(data_dir, **settings))


def assignment_for(executor: str, options: dict[str, Any], **facts: Any) -> Assignment:
    """An assignment for an executor that is not `command`."""
    run = RunSpec(executor=executor, options=options)
    return msgspec.structs.replace(assignment_of(["true"], **facts), run=run)


def claim_directory(root: Path) -> ClaimDirectory:
    directory = ClaimDirectory(root / "claim")
    directory.make()
    return directory
