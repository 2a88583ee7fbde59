"""Resources as a stock: what is left of it, and what of a batch fits into it.

Processors are counted in thousandths, in whole numbers: ten tenths are one.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final, Literal, TypeVar

from hetuflow_core.placement.requirements import Resources

Id = TypeVar("Id")

_MILLI: Final = 1000


def lacking(wanted: Resources, available: Resources) -> Literal["cpu", "memory", "gpu"] | None:
    """The first kind there is not enough of."""
    if _milli(wanted.cpu) > _milli(available.cpu):
        return "cpu"
    if wanted.memory > available.memory:
        return "memory"
    if wanted.gpu > available.gpu:
        return "gpu"
    return None


def free(capacity: Resources, in_use: Resources) -> Resources:
    """What is left; nothing where more is used than there is (a capacity may shrink under running work)."""
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
    """Those rows that fit together, taken in order; what does not fit is passed over, not waited for.

    Waiting for the first would leave the agent idle while smaller work is there. The price: work that needs
    most of an agent gets there late while small work keeps coming; a pool of its own is the remedy.
    """
    chosen: list[Id] = []
    cpu, memory, gpu = _milli(free.cpu), free.memory, free.gpu
    for row_id, wanted in rows:
        if len(chosen) >= slots:
            break
        if _milli(wanted.cpu) > cpu or wanted.memory > memory or wanted.gpu > gpu:
            continue
        cpu -= _milli(wanted.cpu)
        memory -= wanted.memory
        gpu -= wanted.gpu
        chosen.append(row_id)
    return chosen


def times(wanted: Resources, available: Resources, most: int) -> int:
    """How many of this fit together, up to `most`."""
    pairs = (
        (_milli(wanted.cpu), _milli(available.cpu)),
        (wanted.memory, available.memory),
        (wanted.gpu, available.gpu),
    )
    return min([most, *(there // each for each, there in pairs if each > 0)])


def busy_share(capacity: Resources, in_use: Resources, taken: Resources) -> float:
    """How full the fullest kind is, of those `taken` asks for, once it is taken; between 0 and 1."""
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
