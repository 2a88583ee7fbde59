"""The environment of a task: a clean base, what the job says, what Hetuflow tells it.

The base is a list of what may pass, never of what may not: the agent's own environment holds its token.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from functools import lru_cache
from typing import Final

from hetuflow_agent.folders.workdir import OUTPUT, PROGRESS, ClaimDirectory
from hetuflow_core.messages import Assignment

_PASSED_ON: Final = frozenset(
    {"HOME", "LANG", "LANGUAGE", "LOGNAME", "PATH", "SHELL", "TMPDIR", "TZ", "TZDIR", "USER"}
)
_PASSED_ON_PREFIX: Final = "LC_"
_DEFAULT_PATH: Final = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

INSTANCE_MARKER: Final = "HETUFLOW_INSTANCE_ID"


def base_environment(agent: Mapping[str, str]) -> dict[str, str]:
    """What every task inherits of the agent's own environment."""
    passed = {
        name: value
        for name, value in agent.items()
        if name in _PASSED_ON or name.startswith(_PASSED_ON_PREFIX)
    }
    return {"PATH": _DEFAULT_PATH} | passed


def task_environment(
    base: Mapping[str, str], assignment: Assignment, directory: ClaimDirectory
) -> dict[str, str]:
    """The job's variables may replace the base, Hetuflow's own replace both."""
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
    return {**base, **assignment.run.env, **own}


def marker_of(instance_id: object) -> str:
    """The assignment in the environment by which a task's processes are known."""
    return f"{INSTANCE_MARKER}={instance_id}"


@lru_cache(maxsize=64)  # what comes together is often of one instant
def _rfc3339(milliseconds: int) -> str:
    at = datetime.fromtimestamp(milliseconds / 1000, UTC)
    return at.isoformat(timespec="milliseconds").replace("+00:00", "Z")
