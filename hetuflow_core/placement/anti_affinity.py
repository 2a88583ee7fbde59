"""Anti-affinity: whether an agent runs jobs that the work must or should avoid.

Neighbours are the jobs with live instances on the agent, in the namespace of the work. Only the rules of the
new work count, not those of its neighbours.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from hetuflow_core.placement.requirements import AntiAffinity, Neighbour, UnlikedNeighbour


class RunningJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job with a live instance on an agent."""

    namespace: str
    job: str
    labels: dict[str, str] = {}


def unwanted(apart: AntiAffinity, neighbours: Iterable[RunningJob]) -> RunningJob | None:
    """Return the first neighbour that a required rule excludes."""
    if not apart.required:
        return None
    for job in neighbours:
        if any(_matches(rule, job) for rule in apart.required):
            return job
    return None


def discomfort(apart: AntiAffinity, neighbours: Collection[RunningJob]) -> float:
    """Return the weighted share of preferred rules that these neighbours violate, between 0 and 1."""
    if not apart.preferred:
        return 0.0
    violated = sum(rule.weight for rule in apart.preferred if any(_matches(rule, job) for job in neighbours))
    return violated / sum(rule.weight for rule in apart.preferred)


def _matches(rule: Neighbour | UnlikedNeighbour, job: RunningJob) -> bool:
    return (not rule.jobs or job.job in rule.jobs) and all(
        job.labels.get(key) == value for key, value in rule.labels.items()
    )
