"""The graph of a flow: its words, what is wrong with one, and what follows when a node has ended.

`checking.py` finds faults before anything runs, `advancing.py` decides what starts and what is skipped,
`spreading.py` how many items of a map or hosts of a fleet may run, `drawing.py` where everything goes on
paper.
None of it knows what a node does.
"""

from hetuflow_core.graph.advancing import Missing, NodeState, Step, Tally, Verdict, advance, first_step, judge
from hetuflow_core.graph.checking import Problem, certain_upstreams, problems
from hetuflow_core.graph.drawing import draw, layers
from hetuflow_core.graph.nodes import Graph, GraphNode, OnFailure, TriggerRule
from hetuflow_core.graph.spreading import Counts, Share, Spread, fleet_spread, may_start, outcome

__all__ = [
    "Counts",
    "Graph",
    "GraphNode",
    "Missing",
    "NodeState",
    "OnFailure",
    "Problem",
    "Share",
    "Spread",
    "Step",
    "Tally",
    "TriggerRule",
    "Verdict",
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
