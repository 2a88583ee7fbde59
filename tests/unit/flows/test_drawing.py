"""Graphs on paper."""

from __future__ import annotations

from hetuflow_core.flow import Graph, GraphNode, draw, layers

DIAMOND = Graph(
    [
        GraphNode(name="extract"),
        GraphNode(name="lint", needs=("extract",)),
        GraphNode(name="clean", needs=("extract",)),
        GraphNode(name="audit", needs=("extract",)),
        GraphNode(name="load", needs=("clean", "lint")),
        GraphNode(name="end", needs=("load", "audit")),
    ]
)


def test_a_graph_is_drawn_with_its_edges() -> None:
    drawn = draw(DIAMOND, lambda _: "●", {"load": "load  running"})
    assert drawn == [
        "●      extract",
        "├─┬─╮",
        "● │ │  lint",
        "│ ● │  clean",
        "│ │ ●  audit",
        "├─╯ │",
        "●   │  load  running",
        "├───╯",
        "●      end",
    ]


def test_a_node_stands_behind_the_last_of_what_it_needs() -> None:
    assert layers(DIAMOND) == {
        "extract": (0, 0),
        "lint": (1, 0),
        "clean": (1, 1),
        "audit": (1, 2),
        "load": (2, 0),
        "end": (3, 0),
    }
