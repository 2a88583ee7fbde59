"""Layout of a graph: layers for a page, and text lanes for a terminal."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from hetuflow_core.flow.nodes import Graph

_BLANK: Final = " "


def layers(graph: Graph) -> dict[str, tuple[int, int]]:
    """Return {node: (layer, index in the layer)}; a node is one layer after its last upstream node."""
    layer: dict[str, int] = {}
    for name in graph.order:
        layer[name] = 1 + max((layer[need] for need in graph.nodes[name].needs), default=-1)
    placed: dict[str, tuple[int, int]] = {}
    for depth in range(max(layer.values(), default=-1) + 1):
        members = [name for name in graph.order if layer[name] == depth]
        # Place nodes near their upstream nodes, so that few edges cross.
        members.sort(key=lambda name: _middle([placed[need][1] for need in graph.nodes[name].needs]))
        placed |= {name: (depth, place) for place, name in enumerate(members)}
    return placed


def _middle(places: list[int]) -> float:
    return sum(places) / len(places) if places else 0.0


def draw(graph: Graph, sign: Callable[[str], str], text: Mapping[str, str]) -> list[str]:
    """Draw each node on a separate line, `sign` in its lane and `text` after it, with edges between lines."""
    lanes: list[str | None] = []
    drawn: list[tuple[str, str]] = []
    for name in graph.order:
        mine = [place for place, target in enumerate(lanes) if target == name]
        column = mine[0] if mine else _free(lanes)
        if len(mine) > 1:
            drawn.append((_joined(lanes, column, mine[1:]), ""))
        for place in mine[1:]:
            lanes[place] = None
        _put(lanes, column, name)
        _trim(lanes)
        drawn.append((_row(lanes, {column: sign(name)}), text.get(name, name)))
        below = graph.downstream[name]
        lanes[column] = below[0] if below else None
        others = []
        for target in below[1:]:
            others.append(place := _free(lanes, after=column))
            _put(lanes, place, target)
        if others:
            drawn.append((_split(lanes, column, others), ""))
        _trim(lanes)
    width = max((len(row) for row, behind in drawn if behind), default=0)
    return [f"{row:<{width}}  {behind}".rstrip() for row, behind in drawn]


def _free(lanes: list[str | None], after: int = -1) -> int:
    return next((place for place, target in enumerate(lanes) if target is None and place > after), len(lanes))


def _put(lanes: list[str | None], place: int, target: str) -> None:
    if place == len(lanes):
        lanes.append(target)
    else:
        lanes[place] = target


def _trim(lanes: list[str | None]) -> None:
    while lanes and lanes[-1] is None:
        lanes.pop()


def _row(lanes: list[str | None], signs: Mapping[int, str]) -> str:
    cells = [signs.get(place, "│" if target is not None else _BLANK) for place, target in enumerate(lanes)]
    return _BLANK.join(cells).rstrip()


def _joined(lanes: list[str | None], column: int, others: list[int]) -> str:
    return _across(lanes, column, others, last="╯", between="┴")


def _split(lanes: list[str | None], column: int, others: list[int]) -> str:
    kept = list(lanes)
    return _across(kept, column, others, last="╮", between="┬", begin="├" if lanes[column] else "╰")


def _across(
    lanes: list[str | None], column: int, others: list[int], *, last: str, between: str, begin: str = "├"
) -> str:
    """Return one line of lanes with a bar from `column` to the last of `others`."""
    end = max(others)
    cells: list[str] = []
    for place, target in enumerate(lanes):
        if place == column:
            cells.append(begin)
        elif place in others:
            cells.append(last if place == end else between)
        elif column < place < end:
            cells.append("┼" if target is not None else "─")
        else:
            cells.append("│" if target is not None else _BLANK)
    line = ""
    for place, cell in enumerate(cells):
        line += cell + ("─" if column <= place < end else _BLANK)
    return line.rstrip()
