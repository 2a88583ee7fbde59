"""What the templates and conditions of a flow refer to: only what lies upstream, and only what is there."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Final

from hetuflow_core.fields.value_reader import ValueReader
from hetuflow_core.flow import Graph, certain_upstreams
from hetuflow_core.templates import rendering

# What templates of nodes may name, beside what those of jobs may.
FLOW_NAMES: Final = (*rendering.NAMES, "nodes", "flow", "item", "index", "total")
# What `when` may name.
CONDITION_NAMES: Final = ("nodes", "params", "flow")
OUTPUT: Final = "output"
FACTS: Final = ("status", OUTPUT, "total", "succeeded", "failed", "skipped")

# In an expression: nodes.load.succeeded, nodes["clean-up"].output.
_IN_CONDITION: Final = re.compile(
    r"""\bnodes\s*(?:\.\s*(?P<plain>\w+)|\[\s*(?P<quote>["'])(?P<quoted>[^"']*)(?P=quote)\s*\])"""
    r"""(?:\s*\.\s*(?P<fact>\w+))?"""
)


@dataclass(frozen=True, slots=True)
class NodeTexts:
    """What a node says about others, each text with its place."""

    name: str
    templates: Sequence[tuple[ValueReader, str]]
    condition: tuple[ValueReader, str] | None
    # The node has items: a map, or a fleet.
    fans_out: bool


def references_of(texts: Iterable[str]) -> set[tuple[str, ...]]:
    """Return the paths below `nodes` that these templates look up: (node, fact, keys…)."""
    return {
        path[1:]
        for text in texts
        for path, _ in rendering.references(text)
        if path[0] == "nodes" and len(path) > 1
    }


def references_of_condition(source: str) -> set[tuple[str, ...]]:
    """Return (node,) or (node, fact) for everything of `nodes` that a condition looks at."""
    return {
        (match["plain"] or match["quoted"], *([match["fact"]] if match["fact"] else []))
        for match in _IN_CONDITION.finditer(source)
    }


def refuse_bad_references(graph: Graph, nodes: Iterable[NodeTexts]) -> None:
    """Refuse what names no node, a node that is not upstream, or an output that may not be there."""
    certain = certain_upstreams(graph)
    for node in nodes:
        check = _Check(graph, node, certain[node.name])
        for place, text in node.templates:
            for path, guarded in rendering.references(text):
                check.template(place, path, guarded=guarded)
        if node.condition is not None:
            place, text = node.condition
            for path in sorted(references_of_condition(text)):
                check.node(place, path, guarded="has(" in text)


class _Check:
    def __init__(self, graph: Graph, node: NodeTexts, certain: frozenset[str]) -> None:
        self._nodes: Mapping[str, object] = graph.nodes
        self._node = node
        self._upstream = graph.ancestors(node.name)
        self._certain = certain

    def template(self, place: ValueReader, path: tuple[str, ...], *, guarded: bool) -> None:
        root, *below = path
        if root == "nodes":
            if below:
                self.node(place, tuple(below), guarded=guarded)
            else:
                place.refuse("say which node: write nodes.NAME, such as nodes.load.output.")
        elif root in {"item", "index", "total"} and not self._node.fans_out:
            place.refuse(f"only a node with map or fleet has {root}: add one, or use params.")

    def node(self, place: ValueReader, path: tuple[str, ...], *, guarded: bool) -> None:
        name, *facts = path
        if name not in self._nodes:
            close = get_close_matches(name, self._nodes, 1)
            hint = f'did you mean "{close[0]}"?' if close else "name one of the flow's nodes."
            place.refuse(f'there is no node "{name}": {hint}')
        elif name not in self._upstream:
            place.refuse(f'"{name}" is not upstream of "{self._node.name}": add it to needs.')
        elif facts and facts[0] not in FACTS:
            place.refuse(f'a node has no "{facts[0]}": it has {", ".join(FACTS)}.')
        elif facts and facts[0] == OUTPUT and name not in self._certain and not guarded:
            place.refuse(
                f'"{name}" may have been skipped or have failed, and has no output then: '
                "use default(…) or has(…), or the trigger all_succeeded."
            )
