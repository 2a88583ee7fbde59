"""The user and the environment of a task: a clean base, the variables of the job, those of Hetuflow.

The base is a list of allowed variables: the environment of the agent itself contains its token.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from hetuflow_agent.executors.interface import SpawnFailed
from hetuflow_agent.folders.workdir import OUTPUT, PROGRESS, ClaimDirectory
from hetuflow_agent.host.users import TaskUser, find_user
from hetuflow_core.messages import Assignment

_PASSED_ON: Final = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "TZDIR", "USER"}
)
_PASSED_ON_PREFIX: Final = "LC_"
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

INSTANCE_MARKER: Final = "HETUFLOW_INSTANCE_ID"


def base_environment(agent: Mapping[str, str]) -> dict[str, str]:
    """The variables that every task inherits from the agent."""
    passed = {
        name: value
        for name, value in agent.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIX)
    }
    return {"PATH": _DEFAULT_PATH} | passed


def task_environment(
    base: Mapping[str, str],
    assignment: Assignment,
    directory: ClaimDirectory,
    user: TaskUser | None = None,
) -> dict[str, str]:
    """Variables of the user replace the base, those of the job both, those of Hetuflow all others."""
    own = {
        "HETUFLOW_TASK_ID": str(assignment.task_id),
        INSTANCE_MARKER: str(assignment.instance_id),
        "HETUFLOW_ATTEMPT": str(assignment.attempt),
        "HETUFLOW_SCHEDULED_AT": _rfc3339(assignment.fire_at),
        "HETUFLOW_NAMESPACE": assignment.namespace,
        "HETUFLOW_JOB": assignment.job,
        "HETUFLOW_OUTPUT": directory.at(OUTPUT),
        "HETUFLOW_PROGRESS": directory.at(PROGRESS),
    }
    if assignment.slot is not None:
        own["HETUFLOW_SLOT"] = str(assignment.slot)
    if assignment.traceparent is not None:
        own["TRACEPARENT"] = assignment.traceparent
    if user is not None:
        base = {**base, **user.environment}
    return {**base, **assignment.run.env, **own}


def permitted_user(name: str | None, permitted: Collection[str]) -> TaskUser | None:
    """The user to run the task as; None for the agent's own. Raises SpawnFailed.

    The agent checks its list again, because a server must not be able to choose any user of the host.
    """
    if name is None:
        return None
    user = find_user(name) if name in permitted else None
    if user is None:
        raise SpawnFailed(
            f"This agent may not run tasks as {name}: list the user in agent.run_as of an agent of root, "
            "or correct run.user."
        )
    return user


def marker_of(instance_id: object) -> str:
    """The variable in the environment that identifies the processes of a task."""
    return f"{INSTANCE_MARKER}={instance_id}"


@lru_cache(maxsize=64)  # tasks that are claimed together often have the same time
def _rfc3339(milliseconds: int) -> str:
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
