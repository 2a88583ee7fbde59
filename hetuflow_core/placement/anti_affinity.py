"""Anti-affinity: whether work would have neighbours on an agent that it does not want.

Neighbours are the jobs an agent runs or has been given, of the same namespace as the work. The rule is the
work's own: a neighbour that minds in turn says so itself.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable

import msgspec

from hetuflow_core.placement.requirements import AntiAffinity, Neighbour, UnlikedNeighbour


class RunningJob(msgspec.Struct, frozen=True, omit_defaults=True):
    """A job of which an agent has something under way."""

    namespace: str
    job: str
    labels: dict[str, str] = {}


def unwanted(apart: AntiAffinity, neighbours: Iterable[RunningJob]) -> RunningJob | None:
    """The first of the neighbours, all of the work's own namespace, that keeps it away."""
    if not apart.required:
        return None
    for job in neighbours:
        if any(_meant(one, job) for one in apart.required):
            return job
    return None


def discomfort(apart: AntiAffinity, neighbours: Collection[RunningJob]) -> float:
    """The share of what is preferred, by weight, that would not be had beside these; between 0 and 1."""
    if not apart.preferred:
        return 0.0
    missed = sum(one.weight for one in apart.preferred if any(_meant(one, job) for job in neighbours))
    return missed / sum(one.weight for one in apart.preferred)


def _meant(rule: Neighbour | UnlikedNeighbour, job: RunningJob) -> bool:
    return (not rule.jobs or job.job in rule.jobs) and all(
        job.labels.get(key) == value for key, value in rule.labels.items()
    )
