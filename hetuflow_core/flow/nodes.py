"""Nodes and the edges between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property

import msgspec


class TriggerRule(StrEnum):
    """Which ends of its upstreams let a node start; with any other it is skipped."""

    ALL_SUCCEEDED = "all_succeeded"
    ALL_DONE = "all_done"
    ANY_FAILED = "any_failed"
    NONE_FAILED = "none_failed"
    ANY_SUCCEEDED = "any_succeeded"


class OnFailure(StrEnum):
    """What the failure of a node does to its run."""

    # Everything else is ended.
    ABORT = "abort"
    # Whatever the trigger rules allow goes on.
    CONTINUE = "continue"
    # It is tried again; when that does not help, as with `abort`.
    RETRY = "retry"


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    needs: tuple[str, ...] = ()
    trigger: TriggerRule = TriggerRule.ALL_SUCCEEDED
    # Its failure ends the run.
    aborts: bool = True
    # It has a `when`.
    conditional: bool = False


class Graph:
    """A graph without faults."""

    def __init__(self, nodes: Iterable[GraphNode]) -> None:
        self.nodes: Mapping[str, GraphNode] = {node.name: node for node in nodes}

    @cached_property
    def downstream(self) -> Mapping[str, tuple[str, ...]]:
        """{node: those that need it}, in the order of the file."""
        found: defaultdict[str, list[str]] = defaultdict(list)
        for node in self.nodes.values():
            for need in node.needs:
                found[need].append(node.name)
        return {name: tuple(found.get(name, ())) for name in self.nodes}

    @cached_property
    def roots(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes.values() if not node.needs)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Every node behind all it needs, otherwise as in the file."""
        placed: dict[str, None] = {}
        left = {name: len(node.needs) for name, node in self.nodes.items()}
        ready = [name for name, needs in left.items() if not needs]
        for name in ready:  # grows while it is gone through
            placed[name] = None
            for below in self.downstream[name]:
                left[below] -= 1
                if not left[below]:
                    ready.append(below)
        return tuple(placed)

    def ancestors(self, name: str) -> frozenset[str]:
        """Everything upstream of a node, however far."""
        return self._ancestors[name]

    @cached_property
    def _ancestors(self) -> Mapping[str, frozenset[str]]:
        found: dict[str, frozenset[str]] = {}
        for name in self.order:
            needs = self.nodes[name].needs
            found[name] = frozenset(needs).union(*(found[need] for need in needs))
        return found
