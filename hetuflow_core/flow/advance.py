"""Decide which nodes start or are skipped after nodes of a run have ended.

A decision needs the state of few nodes: the ended nodes and their successors. The caller passes the states it
has; if these are not enough, the result is `Missing`, and the caller repeats the call with more. So a run of
a thousand nodes is never read completely.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from hetuflow_core.flow.nodes import Graph, TriggerRule
from hetuflow_core.states import FlowNodeStatus


@dataclass(frozen=True, slots=True)
class UpstreamCounts:
    """Outcomes of a node's direct upstream nodes so far; a cancelled node counts as failed."""

    succeeded: int = 0
    failed: int = 0
    skipped: int = 0

    @property
    def ended(self) -> int:
        return self.succeeded + self.failed + self.skipped

    def with_one(self, status: FlowNodeStatus) -> UpstreamCounts:
        if status is FlowNodeStatus.SUCCEEDED:
            return replace(self, succeeded=self.succeeded + 1)
        if status is FlowNodeStatus.SKIPPED:
            return replace(self, skipped=self.skipped + 1)
        return replace(self, failed=self.failed + 1)


class NodeVerdict(Enum):
    WAIT = auto()
    START = auto()
    SKIP = auto()


def judge(rule: TriggerRule, needs: int, tally: UpstreamCounts) -> NodeVerdict:
    """Decide whether a node starts. A skip waits for all upstream nodes: successors must not run early."""
    if rule is TriggerRule.ANY_FAILED and tally.failed:
        return NodeVerdict.START
    if rule is TriggerRule.ANY_SUCCEEDED and tally.succeeded:
        return NodeVerdict.START
    if tally.ended < needs:
        return NodeVerdict.WAIT
    match rule:
        case TriggerRule.ALL_SUCCEEDED:
            starts = tally.succeeded == needs
        case TriggerRule.NONE_FAILED:
            starts = not tally.failed
        case TriggerRule.ALL_DONE:
            starts = True
        case _:
            starts = False
    return NodeVerdict.START if starts else NodeVerdict.SKIP


@dataclass(frozen=True, slots=True)
class NodeState:
    status: FlowNodeStatus
    tally: UpstreamCounts = UpstreamCounts()


@dataclass(frozen=True, slots=True)
class Missing:
    """No decision: these inputs are required first."""

    states: frozenset[str] = frozenset()
    # Nodes whose `when` decides whether they start.
    conditions: frozenset[str] = frozenset()


@dataclass(slots=True)
class Step:
    # In the order of the graph.
    start: list[str] = field(default_factory=list)
    # {node: reason}.
    skip: dict[str, str] = field(default_factory=dict)
    # New counts of waiting nodes.
    tallies: dict[str, UpstreamCounts] = field(default_factory=dict)
    # The node whose failure ends the run; then all other fields are empty.
    abort: str | None = None


UPSTREAM, CONDITION = "upstream", "when"


def advance(
    graph: Graph,
    states: Mapping[str, NodeState],
    ended: Mapping[str, FlowNodeStatus],
    conditions: Mapping[str, bool],
) -> Step | Missing:
    """Decide after the end of nodes. `states` are the previous states, `conditions` the results of `when`."""
    for name, status in ended.items():
        if graph.nodes[name].aborts and status in {FlowNodeStatus.FAILED, FlowNodeStatus.CANCELLED}:
            return Step(abort=name)
    advancing = _Advance(graph, states, conditions)
    frontier = dict(ended)
    while frontier:
        frontier = advancing.count(frontier)
    if advancing.missing or advancing.undecided:
        return Missing(frozenset(advancing.missing), frozenset(advancing.undecided))
    return advancing.step


class _Advance:
    """Decides about the successors of ended nodes, then about the successors of skipped nodes."""

    def __init__(self, graph: Graph, states: Mapping[str, NodeState], conditions: Mapping[str, bool]) -> None:
        self.step = Step()
        self.missing: set[str] = set()
        self.undecided: set[str] = set()
        self._graph = graph
        self._states = states
        self._conditions = conditions

    def count(self, ended: Mapping[str, FlowNodeStatus]) -> dict[str, FlowNodeStatus]:
        """Count ended nodes and decide about their successors; return the skipped ones."""
        step, touched = self.step, dict[str, None]()
        for name, status in ended.items():
            for below in self._graph.downstream[name]:
                state = self._states.get(below)
                if state is None:
                    self.missing.add(below)
                elif state.status is FlowNodeStatus.WAITING and not self._decided(below):
                    step.tallies[below] = step.tallies.get(below, state.tally).with_one(status)
                    touched[below] = None
        skipped = [name for name in touched if not self._decide(name)]
        return dict.fromkeys(skipped, FlowNodeStatus.SKIPPED)

    def _decided(self, name: str) -> bool:
        """Whether the node is already started or skipped; further ends do not count for it."""
        return name in self.step.start or name in self.step.skip

    def _decide(self, name: str) -> bool:
        """Return False if the node is skipped."""
        node = self._graph.nodes[name]
        verdict = judge(node.trigger, len(node.needs), self.step.tallies[name])
        if verdict is NodeVerdict.START and node.conditional and name not in self._conditions:
            self.undecided.add(name)
        elif verdict is NodeVerdict.START and self._conditions.get(name, True):
            self.step.start.append(name)
        elif verdict is not NodeVerdict.WAIT:
            self.step.skip[name] = UPSTREAM if verdict is NodeVerdict.SKIP else CONDITION
            return False
        return True


def first_step(
    graph: Graph, conditions: Mapping[str, bool], done: Mapping[str, FlowNodeStatus] | None = None
) -> Step | Missing:
    """Decide which nodes start a run: its roots, and the successors of skipped and `done` nodes."""
    done = done or {}
    roots = [name for name in graph.roots if name not in done]
    undecided = {name for name in roots if graph.nodes[name].conditional and name not in conditions}
    if undecided:
        return Missing(conditions=frozenset(undecided))
    skip = {name: CONDITION for name in roots if not conditions.get(name, True)}
    states = {name: NodeState(done.get(name, FlowNodeStatus.WAITING)) for name in graph.nodes}
    ended = {**done, **dict.fromkeys(skip, FlowNodeStatus.SKIPPED)}
    step = advance(graph, states, ended, conditions)
    if isinstance(step, Missing):
        return step
    roots = [name for name in roots if name not in skip]
    return Step(start=[*roots, *step.start], skip=skip | step.skip, tallies=step.tallies)
