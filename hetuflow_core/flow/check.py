"""Find all faults of a graph, each with its node and key."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from difflib import get_close_matches
from typing import Final, NamedTuple

from hetuflow_core.flow.nodes import Graph, GraphNode, TriggerRule

MOST_NODES: Final = 1_000
DEEPEST: Final = 250
MOST_NEEDS: Final = 500


class GraphProblem(NamedTuple):
    # The index of the node in the file; None: the whole graph.
    place: int | None
    # The key of the node; None: the whole node.
    key: str | None
    message: str


def problems(nodes: Sequence[GraphNode]) -> list[GraphProblem]:
    """Return all structural faults of the graph."""
    if not nodes:
        return [GraphProblem(None, None, "the flow has no nodes: write at least one.")]
    if len(nodes) > MOST_NODES:
        return [
            GraphProblem(
                None, None, f"a flow has at most {MOST_NODES} nodes, not {len(nodes)}: use sub-flows."
            )
        ]
    faults = [*_names(nodes), *_edges(nodes)]
    known = {node.name: node for node in reversed(nodes)}
    places = {node.name: place for place, node in reversed(list(enumerate(nodes)))}
    # Invalid edges are ignored in the search for cycles.
    kept = {
        name: [need for need in dict.fromkeys(node.needs) if need in known and need != name]
        for name, node in known.items()
    }
    behind = _not_placed(kept)
    for cycle in _cycles(kept, behind):
        path = " → ".join([*cycle, cycle[0]])
        faults.append(
            GraphProblem(places[cycle[0]], "needs", f"the nodes wait for each other: {path}. Remove one.")
        )
        behind -= set(cycle)
    faults += [
        GraphProblem(places[name], None, "can never start: it depends on nodes that wait for each other.")
        for name in sorted(behind, key=places.__getitem__)
    ]
    return [*faults, *_depth(kept, places), *_idle_triggers(known, places)]


def certain_upstreams(graph: Graph) -> dict[str, frozenset[str]]:
    """Return, for each node, the nodes that have always succeeded when it starts, so their outputs exist."""
    certain: dict[str, frozenset[str]] = {}
    for name in graph.order:
        node = graph.nodes[name]
        each = [frozenset({need}) | certain[need] for need in node.needs]
        match node.trigger:
            case TriggerRule.ALL_SUCCEEDED:
                certain[name] = frozenset().union(*each)
            case TriggerRule.ANY_SUCCEEDED:
                certain[name] = each[0].intersection(*each[1:]) if each else frozenset()
            case _:
                certain[name] = frozenset()
    return certain


def _names(nodes: Sequence[GraphNode]) -> Iterator[GraphProblem]:
    seen: set[str] = set()
    for place, node in enumerate(nodes):
        if node.name in seen:
            yield GraphProblem(place, "name", f'the node "{node.name}" is written twice: rename one of them.')
        seen.add(node.name)


def _edges(nodes: Sequence[GraphNode]) -> Iterator[GraphProblem]:
    names = {node.name for node in nodes}
    for place, node in enumerate(nodes):
        if len(node.needs) > MOST_NEEDS:
            yield GraphProblem(
                place, "needs", f"a node needs at most {MOST_NEEDS} others: put a node in between."
            )
        for need in sorted({need for need in node.needs if node.needs.count(need) > 1}):
            yield GraphProblem(place, "needs", f'"{need}" is needed twice: remove one of them.')
        for need in dict.fromkeys(node.needs):
            if need == node.name:
                yield GraphProblem(place, "needs", f'"{need}" needs itself: remove it.')
            elif need not in names:
                close = get_close_matches(need, names, 1)
                hint = f'did you mean "{close[0]}"?' if close else "add it, or remove it here."
                yield GraphProblem(place, "needs", f'the node "{need}" does not exist: {hint}')


def _not_placed(needs: dict[str, list[str]]) -> set[str]:
    """Return the nodes in a cycle or downstream of one."""
    left = {name: set(upstreams) for name, upstreams in needs.items()}
    while ready := [name for name, upstreams in left.items() if not upstreams]:
        for name in ready:
            del left[name]
        for upstreams in left.values():
            upstreams.difference_update(ready)
    return set(left)


def _cycles(needs: dict[str, list[str]], among: set[str]) -> Iterator[list[str]]:
    """Yield cycles that share no node, each in dependency order."""
    visited: set[str] = set()
    for start in needs:
        if start not in among or start in visited:
            continue
        path: list[str] = []
        name: str | None = start
        while name is not None and name not in visited:
            visited.add(name)
            path.append(name)
            name = next((need for need in needs[name] if need in among), None)
        if name is not None and name in path:
            yield path[path.index(name) :][::-1]


def _depth(needs: dict[str, list[str]], places: dict[str, int]) -> Iterator[GraphProblem]:
    """Check the depth of the nodes outside of cycles."""
    level: dict[str, int] = {}
    waiting = dict(needs)
    while ready := [name for name, upstreams in waiting.items() if all(up in level for up in upstreams)]:
        for name in ready:
            level[name] = 1 + max((level[up] for up in waiting.pop(name)), default=0)
    deepest = max(level, key=lambda name: level[name], default=None)
    if deepest is not None and level[deepest] > DEEPEST:
        yield GraphProblem(
            places[deepest],
            None,
            f"is {level[deepest]} nodes deep, but the limit is {DEEPEST}: use sub-flows.",
        )


def _idle_triggers(known: dict[str, GraphNode], places: dict[str, int]) -> Iterator[GraphProblem]:
    """Yield nodes whose trigger can never start them."""
    for name, node in known.items():
        if node.trigger in {TriggerRule.ANY_FAILED, TriggerRule.ANY_SUCCEEDED} and not node.needs:
            yield GraphProblem(places[name], "trigger", f"{node.trigger} needs a node before it: add needs.")
        elif node.trigger is TriggerRule.ANY_FAILED:
            upstreams = [known[need] for need in node.needs if need in known]
            if upstreams and all(upstream.aborts for upstream in upstreams):
                yield GraphProblem(
                    places[name],
                    "trigger",
                    f"can never start: when {upstreams[0].name} fails the run is aborted. "
                    f"Give {upstreams[0].name} on_failure: continue.",
                )
