"""Which CPUs a task may use, where no control group holds it to its share.

A task that asks for one and a half gets two of them. Each goes to those that were promised least so far, so
tasks that ask for no more than the host has do not get in each other's way.
"""

from __future__ import annotations

import math
from collections.abc import Iterable


class Cpus:
    def __init__(self, available: Iterable[int]) -> None:
        self._promised = dict.fromkeys(sorted(available), 0.0)
        self._shares: dict[str, tuple[frozenset[int], float]] = {}

    def take(self, key: str, amount: float) -> frozenset[int] | None:
        """The CPUs for it, until it gives them back; None when it may use all there are."""
        wanted = max(1, math.ceil(amount))
        if wanted >= len(self._promised) or key in self._shares:
            return None
        chosen = frozenset(sorted(self._promised, key=lambda cpu: (self._promised[cpu], cpu))[:wanted])
        self._shares[key] = (chosen, amount / wanted)
        self._promise(key, 1)
        return chosen

    def give_back(self, key: str) -> None:
        if key in self._shares:
            self._promise(key, -1)
            del self._shares[key]

    def _promise(self, key: str, sign: int) -> None:
        chosen, share = self._shares[key]
        for cpu in chosen:
            self._promised[cpu] += sign * share
