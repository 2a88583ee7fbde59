"""What follows when nodes of a run have ended.

A decision needs the state of few nodes: those that ended and those right behind them. Whoever asks gives what
it has; when that is not enough the answer is `Missing`, and it asks again with more. So a run of a thousand
nodes is never read whole, and the same function decides in tests without any database.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum, auto

from hetuflow_core.flow.nodes import Graph, TriggerRule
from hetuflow_core.states import FlowNodeStatus


@dataclass(frozen=True, slots=True)
class UpstreamCounts:
    """How a node's direct upstreams have ended so far; a cancelled one counts as failed."""

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
    """Whether a node may start. A skip waits for the last upstream: what is behind it must not run early."""
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
    """Not decided: these have to be known first."""

    states: frozenset[str] = frozenset()
    # Nodes that may start if their `when` holds.
    conditions: frozenset[str] = frozenset()


@dataclass(slots=True)
class Step:
    # In the order of the graph.
    start: list[str] = field(default_factory=list)
    # {node: why}.
    skip: dict[str, str] = field(default_factory=dict)
    # New tallies of nodes that wait.
    tallies: dict[str, UpstreamCounts] = field(default_factory=dict)
    # The node whose failure ends the run; then nothing else follows.
    abort: str | None = None


UPSTREAM, CONDITION = "upstream", "when"


def advance(
    graph: Graph,
    states: Mapping[str, NodeState],
    ended: Mapping[str, FlowNodeStatus],
    conditions: Mapping[str, bool],
) -> Step | Missing:
    """Decide what follows the end of these nodes. `states` are as before; `conditions` what `when` gave."""
    for name, status in ended.items():
        if graph.nodes[name].aborts and status in {FlowNodeStatus.FAILED, FlowNodeStatus.CANCELLED}:
            return Step(abort=name)
    walk = _Advance(graph, states, conditions)
    frontier = dict(ended)
    while frontier:
        frontier = walk.on(frontier)
    if walk.missing or walk.undecided:
        return Missing(frozenset(walk.missing), frozenset(walk.undecided))
    return walk.step


class _Advance:
    """From nodes that ended to those behind them, and on from those that are skipped."""

    def __init__(self, graph: Graph, states: Mapping[str, NodeState], conditions: Mapping[str, bool]) -> None:
        self.step = Step()
        self.missing: set[str] = set()
        self.undecided: set[str] = set()
        self._graph = graph
        self._states = states
        self._conditions = conditions

    def on(self, ended: Mapping[str, FlowNodeStatus]) -> dict[str, FlowNodeStatus]:
        """Count these ends and decide about those behind; return what is skipped by that."""
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
        """Whether this walk has started or skipped it; what ends behind that counts for it no more."""
        return name in self.step.start or name in self.step.skip

    def _decide(self, name: str) -> bool:
        """Return False when the node is skipped."""
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
    """Decide what starts a run: its roots, and what follows from those that are skipped or `done` at once."""
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
