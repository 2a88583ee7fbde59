"""Free resources of an agent, and the selection of a batch that fits.

CPUs are counted in integer thousandths, so that sums are exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeVar

from hetuflow_core.placement.requirements import Resources

Id = TypeVar("Id")

_MILLI: Final = 1000


def lacking(requested: Resources, available: Resources) -> Literal["cpu", "memory", "gpu"] | None:
    """Return the first kind of resource that is insufficient."""
    if _milli(requested.cpu) > _milli(available.cpu):
        return "cpu"
    if requested.memory > available.memory:
        return "memory"
    if requested.gpu > available.gpu:
        return "gpu"
    return None


def free(capacity: Resources, in_use: Resources) -> Resources:
    """Return the free resources, at least zero: the capacity may shrink while tasks run."""
    return Resources(
        cpu=max(0, _milli(capacity.cpu) - _milli(in_use.cpu)) / _MILLI,
        memory=max(0, capacity.memory - in_use.memory),
        gpu=max(0, capacity.gpu - in_use.gpu),
    )


def total(taken: Iterable[Resources]) -> Resources:
    cpu = memory = gpu = 0
    for resources in taken:
        cpu += _milli(resources.cpu)
        memory += resources.memory
        gpu += resources.gpu
    return Resources(cpu=cpu / _MILLI, memory=memory, gpu=gpu)


def fit_batch(rows: Sequence[tuple[Id, Resources]], free: Resources, slots: int) -> list[Id]:
    """Return the rows that fit together, in order; rows that do not fit are skipped.

    Waiting for the first row would leave the agent idle while smaller work exists. The trade-off: work that
    needs most of an agent is delayed while small work arrives constantly; a separate pool avoids that.
    """
    chosen: list[Id] = []
    cpu, memory, gpu = _milli(free.cpu), free.memory, free.gpu
    for row_id, requested in rows:
        if len(chosen) >= slots:
            break
        if _milli(requested.cpu) > cpu or requested.memory > memory or requested.gpu > gpu:
            continue
        cpu -= _milli(requested.cpu)
        memory -= requested.memory
        gpu -= requested.gpu
        chosen.append(row_id)
    return chosen


def times(requested: Resources, available: Resources, most: int) -> int:
    """Return how many instances with these resources fit together, up to `most`."""
    pairs = (
        (_milli(requested.cpu), _milli(available.cpu)),
        (requested.memory, available.memory),
        (requested.gpu, available.gpu),
    )
    return min([most, *(amount // each for each, amount in pairs if each > 0)])


def busy_share(capacity: Resources, in_use: Resources, taken: Resources) -> float:
    """Return the highest utilisation, between 0 and 1, of the kinds in `taken` after it is added."""
    shares = [
        _share(_milli(in_use.cpu) + _milli(taken.cpu), _milli(capacity.cpu)) if taken.cpu else 0.0,
        _share(in_use.memory + taken.memory, capacity.memory) if taken.memory else 0.0,
        _share(in_use.gpu + taken.gpu, capacity.gpu) if taken.gpu else 0.0,
    ]
    return max(shares)


def _share(used: int, capacity: int) -> float:
    return min(1.0, used / capacity) if capacity > 0 else 1.0


def _milli(cpu: float) -> int:
    return round(cpu * _MILLI)
