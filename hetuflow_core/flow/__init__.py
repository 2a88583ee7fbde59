"""The graph of a flow: its types, its validation, and the decisions after a node has ended.

`check.py` finds faults of a graph, `advance.py` decides which nodes start and which are skipped,
`fan_out.py` how many items of a map or hosts of a fleet may run, `drawing.py` computes the layout of a
drawing.
The modules do not depend on the kinds of nodes.
"""

from hetuflow_core.flow.advance import (
    Missing,
    NodeState,
    NodeVerdict,
    Step,
    UpstreamCounts,
    advance,
    first_step,
    judge,
)
from hetuflow_core.flow.check import GraphProblem, certain_upstreams, problems
from hetuflow_core.flow.drawing import draw, layers
from hetuflow_core.flow.fan_out import FanOut, ItemCounts, ItemShare, fleet_spread, may_start, outcome
from hetuflow_core.flow.nodes import Graph, GraphNode, OnFailure, TriggerRule

__all__ = [
    "FanOut",
    "Graph",
    "GraphNode",
    "GraphProblem",
    "ItemCounts",
    "ItemShare",
    "Missing",
    "NodeState",
    "NodeVerdict",
    "OnFailure",
    "Step",
    "TriggerRule",
    "UpstreamCounts",
    "advance",
    "certain_upstreams",
    "draw",
    "first_step",
    "fleet_spread",
    "judge",
    "layers",
    "may_start",
    "outcome",
    "problems",
]
