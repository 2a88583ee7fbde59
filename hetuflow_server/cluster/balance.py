"""Which server looks after which namespace: evenly by weight and load, moving as little as possible.

A namespace is a burden, a server has a weight, and a server's pressure is the sum of its burdens divided by
its weight. What is decided, in this order:

    pinned      to a server that lives: there and nowhere else
    orphaned    heaviest first, to where the pressure is least afterwards
    the rest    stays, unless pressures differ by more than a fifth of their mean; then one after the other
                moves from the greatest pressure to the least, as long as that makes the greater one less

So two servers end up no further apart than the heaviest single namespace, load that goes up and down a little
moves nothing, and a server that joins or leaves moves about its own share.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from uuid import UUID

# Pressures closer together than this share of their mean are left alone.
TOLERANCE = 0.2


@dataclass(frozen=True, slots=True)
class Namespace:
    id: int
    burden: float
    # Where it is now; a server that does not live is as good as none.
    server: UUID | None = None
    # Where it must be while one of these lives.
    pinned_to: frozenset[UUID] = frozenset()


@dataclass(slots=True)
class _ServerLoad:
    """A server and what lies on it."""

    id: UUID
    weight: float
    load: float = 0.0
    # What may be moved away: pinned namespaces are not in it.
    movable: dict[int, float] = field(default_factory=dict)

    @property
    def pressure(self) -> float:
        return self.load / self.weight

    def pressure_with(self, burden: float) -> float:
        return (self.load + burden) / self.weight


def balance(
    namespaces: Sequence[Namespace], servers: Mapping[UUID, float], *, even_out: bool = True
) -> dict[int, UUID]:
    """Return {namespace: server} for every namespace; empty when there is no server.

    A server of weight 0 gets nothing but what is pinned to it, while there are others. Without `even_out`
    only what is on no server it may be on is moved.
    """
    if not servers:
        return {}
    willing = {id_: weight for id_, weight in servers.items() if weight > 0} or dict.fromkeys(servers, 1.0)
    loads = {id_: _ServerLoad(id_, willing.get(id_, 1.0)) for id_ in sorted(servers)}
    placed: dict[int, UUID] = {}
    orphans: list[tuple[Namespace, list[_ServerLoad]]] = []
    for namespace in sorted(namespaces, key=lambda one: one.id):
        pins = [loads[id_] for id_ in sorted(namespace.pinned_to) if id_ in loads]
        allowed = pins or [loads[id_] for id_ in sorted(willing)]
        if (here := next((server for server in allowed if server.id == namespace.server), None)) is None:
            orphans.append((namespace, allowed))
        else:
            _put(here, namespace, placed, movable=not pins)
    for orphan, allowed in sorted(orphans, key=lambda one: (-one[0].burden, one[0].id)):
        burden = orphan.burden
        server = min(allowed, key=lambda one: (one.pressure_with(burden), one.id))
        _put(server, orphan, placed, movable=not orphan.pinned_to & loads.keys())
    if even_out:
        _even_out([loads[id_] for id_ in sorted(willing)], placed)
    return placed


def _put(server: _ServerLoad, namespace: Namespace, placed: dict[int, UUID], *, movable: bool) -> None:
    placed[namespace.id] = server.id
    server.load += namespace.burden
    if movable:
        server.movable[namespace.id] = namespace.burden


def _even_out(loads: Sequence[_ServerLoad], placed: dict[int, UUID]) -> None:
    pressures = [server.pressure for server in loads]
    mean = sum(server.load for server in loads) / sum(server.weight for server in loads)
    if max(pressures) - min(pressures) <= TOLERANCE * mean:
        return
    while (move := _best_move(loads)) is not None:
        namespace, source, target = move
        burden = source.movable.pop(namespace)
        source.load -= burden
        target.load += burden
        target.movable[namespace] = burden
        placed[namespace] = target.id


def _best_move(loads: Sequence[_ServerLoad]) -> tuple[int, _ServerLoad, _ServerLoad] | None:
    """Return what to move from where to where, or None when nothing would make it better."""
    target = min(loads, key=lambda server: (server.pressure, server.id))
    for source in sorted(loads, key=lambda server: (-server.pressure, server.id)):
        best = min(
            (
                (max(target.pressure_with(burden), source.pressure_with(-burden)), id_)
                for id_, burden in source.movable.items()
                if source is not target
            ),
            default=None,
        )
        # By more than rounding: what makes no difference must not go back and forth.
        if best is not None and best[0] < source.pressure * (1 - 1e-9):
            return best[1], source, target
    return None
