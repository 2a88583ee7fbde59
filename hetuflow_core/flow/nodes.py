"""Nodes and the edges between them."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from enum import StrEnum
from functools import cached_property

import msgspec


class TriggerRule(StrEnum):
    """Which outcomes of its upstream nodes start a node; otherwise it is skipped."""

    ALL_SUCCEEDED = "all_succeeded"
    ALL_DONE = "all_done"
    ANY_FAILED = "any_failed"
    NONE_FAILED = "none_failed"
    ANY_SUCCEEDED = "any_succeeded"


class OnFailure(StrEnum):
    """The effect of a node's failure on its run."""

    # All other nodes are ended.
    ABORT = "abort"
    # Nodes whose trigger rules allow it continue.
    CONTINUE = "continue"
    # The node is retried; if all retries fail, as with `abort`.
    RETRY = "retry"


class GraphNode(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    needs: tuple[str, ...] = ()
    trigger: TriggerRule = TriggerRule.ALL_SUCCEEDED
    # A failure of the node ends the run.
    aborts: bool = True
    # The node has a `when`.
    conditional: bool = False


class Graph:
    """A valid graph."""

    def __init__(self, nodes: Iterable[GraphNode]) -> None:
        self.nodes: Mapping[str, GraphNode] = {node.name: node for node in nodes}

    @cached_property
    def downstream(self) -> Mapping[str, tuple[str, ...]]:
        """{node: nodes that need it}, in the order of the file."""
        successors: defaultdict[str, list[str]] = defaultdict(list)
        for node in self.nodes.values():
            for need in node.needs:
                successors[need].append(node.name)
        return {name: tuple(successors.get(name, ())) for name in self.nodes}

    @cached_property
    def roots(self) -> tuple[str, ...]:
        return tuple(node.name for node in self.nodes.values() if not node.needs)

    @cached_property
    def order(self) -> tuple[str, ...]:
        """Topological order, otherwise as in the file."""
        placed: dict[str, None] = {}
        left = {name: len(node.needs) for name, node in self.nodes.items()}
        ready = [name for name, needs in left.items() if not needs]
        for name in ready:  # grows during the iteration
            placed[name] = None
            for below in self.downstream[name]:
                left[below] -= 1
                if not left[below]:
                    ready.append(below)
        return tuple(placed)

    def ancestors(self, name: str) -> frozenset[str]:
        """All direct and indirect upstream nodes."""
        return self._ancestors[name]

    @cached_property
    def _ancestors(self) -> Mapping[str, frozenset[str]]:
        ancestors: dict[str, frozenset[str]] = {}
        for name in self.order:
            needs = self.nodes[name].needs
            ancestors[name] = frozenset(needs).union(*(ancestors[need] for need in needs))
        return ancestors
