"""Runs of random graphs with random outcomes, against an interpreter that looks at everything every time."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.flow import (
    Graph,
    GraphNode,
    Missing,
    NodeState,
    NodeVerdict,
    Step,
    TriggerRule,
    UpstreamCounts,
    advance,
    certain_upstreams,
    first_step,
    judge,
    problems,
)
from hetuflow_core.states import FLOW_NODE_TERMINAL, FlowNodeStatus as S


@pytest.mark.parametrize(
    ("rule", "needs", "tally", "verdict"),
    [
        (TriggerRule.ALL_SUCCEEDED, 0, UpstreamCounts(), NodeVerdict.START),
        (TriggerRule.ALL_SUCCEEDED, 2, UpstreamCounts(1), NodeVerdict.WAIT),
        (TriggerRule.ALL_SUCCEEDED, 2, UpstreamCounts(2), NodeVerdict.START),
        (TriggerRule.ALL_SUCCEEDED, 2, UpstreamCounts(1, 0, 1), NodeVerdict.SKIP),
        # What is behind a skipped node must not run while another upstream still does.
        (TriggerRule.ALL_SUCCEEDED, 2, UpstreamCounts(0, 1), NodeVerdict.WAIT),
        (TriggerRule.ALL_DONE, 2, UpstreamCounts(0, 1), NodeVerdict.WAIT),
        (TriggerRule.ALL_DONE, 2, UpstreamCounts(0, 1, 1), NodeVerdict.START),
        (TriggerRule.NONE_FAILED, 2, UpstreamCounts(1, 0, 1), NodeVerdict.START),
        (TriggerRule.NONE_FAILED, 2, UpstreamCounts(1, 1), NodeVerdict.SKIP),
        (TriggerRule.ANY_FAILED, 3, UpstreamCounts(1, 1), NodeVerdict.START),
        (TriggerRule.ANY_FAILED, 2, UpstreamCounts(1, 0, 1), NodeVerdict.SKIP),
        (TriggerRule.ANY_SUCCEEDED, 3, UpstreamCounts(1), NodeVerdict.START),
        (TriggerRule.ANY_SUCCEEDED, 2, UpstreamCounts(0, 1, 1), NodeVerdict.SKIP),
        (TriggerRule.ANY_SUCCEEDED, 2, UpstreamCounts(0, 1), NodeVerdict.WAIT),
    ],
)
def test_rules(rule: TriggerRule, needs: int, tally: UpstreamCounts, verdict: NodeVerdict) -> None:
    assert judge(rule, needs, tally) is verdict


@dataclass(frozen=True)
class Case:
    graph: Graph
    # What each node ends as if it runs, and what its `when` gives.
    outcomes: Mapping[str, S]
    conditions: Mapping[str, bool]
    # Which of those that run ends next.
    choices: list[int]


@st.composite
def cases(draw: Callable[..., Any]) -> Case:
    count = draw(st.integers(1, 9))
    nodes = []
    for number in range(count):
        earlier = [node.name for node in nodes]
        needs = draw(st.lists(st.sampled_from(earlier), unique=True, max_size=3)) if earlier else []
        rules = list(TriggerRule) if needs else [TriggerRule.ALL_SUCCEEDED, TriggerRule.ALL_DONE]
        nodes.append(
            GraphNode(
                name=f"n{number}",
                needs=tuple(needs),
                trigger=draw(st.sampled_from(rules)),
                aborts=bool(draw(st.sampled_from([False, False, True]))),
                conditional=bool(draw(st.booleans())),
            )
        )
    ends = st.sampled_from([S.SUCCEEDED, S.SUCCEEDED, S.FAILED, S.SKIPPED, S.CANCELLED])
    return Case(
        Graph(nodes),
        {node.name: draw(ends) for node in nodes},
        {node.name: bool(draw(st.booleans())) for node in nodes if node.conditional},
        draw(st.lists(st.integers(0, 50), min_size=count, max_size=count)),
    )


@dataclass
class Run:
    """A run in memory, advanced as the engine advances one: with few states, and more when asked."""

    case: Case
    states: dict[str, NodeState]
    started: list[str] = field(default_factory=list)
    aborted: bool = False

    def take(self, decide: Callable[[Mapping[str, NodeState], Mapping[str, bool]], Step | Missing]) -> None:
        known: dict[str, NodeState] = {}
        conditions: dict[str, bool] = {}
        while isinstance(step := decide(known, conditions), Missing):
            asked = (step.states - known.keys()) | (step.conditions - conditions.keys())
            assert asked, "it asked for the same again"
            known |= {name: self.states[name] for name in step.states}
            conditions |= {name: self.case.conditions[name] for name in step.conditions}
        if step.abort is not None:
            self.aborted = True
            for name, state in self.states.items():
                if state.status not in FLOW_NODE_TERMINAL:
                    self.states[name] = replace(state, status=S.CANCELLED)
            return
        for name, tally in step.tallies.items():
            self.states[name] = replace(self.states[name], tally=tally)
        for name in step.skip:
            self.states[name] = replace(self.states[name], status=S.SKIPPED)
        for name in step.start:
            assert name not in self.started
            self.started.append(name)
            self.states[name] = replace(self.states[name], status=S.RUNNING)

    @property
    def running(self) -> list[str]:
        return [name for name, state in self.states.items() if state.status is S.RUNNING]

    def end(self, name: str) -> None:
        status = self.case.outcomes[name]
        self.states[name] = replace(self.states[name], status=status)
        self.take(lambda states, given: advance(self.case.graph, states, {name: status}, given))

    @property
    def statuses(self) -> dict[str, S]:
        return {name: state.status for name, state in self.states.items()}


class Reference:
    """The same rules, by looking at every node after every end."""

    def __init__(self, case: Case) -> None:
        self.case = case
        self.statuses = dict.fromkeys(case.graph.nodes, S.WAITING)
        self.settle()

    def settle(self) -> None:
        while any(self.look(name) for name in self.case.graph.nodes):
            pass

    def look(self, name: str) -> bool:
        node = self.case.graph.nodes[name]
        if self.statuses[name] is not S.WAITING:
            return False
        ups = [self.statuses[need] for need in node.needs]
        done = all(up in FLOW_NODE_TERMINAL for up in ups)
        good = [up is S.SUCCEEDED for up in ups]
        bad = [up in {S.FAILED, S.CANCELLED} for up in ups]
        starts = {
            TriggerRule.ALL_SUCCEEDED: done and all(good),
            TriggerRule.ALL_DONE: done,
            TriggerRule.NONE_FAILED: done and not any(bad),
            TriggerRule.ANY_FAILED: any(bad),
            TriggerRule.ANY_SUCCEEDED: any(good),
        }[node.trigger]
        if starts:
            self.statuses[name] = S.RUNNING if self.case.conditions.get(name, True) else S.SKIPPED
        elif done:
            self.statuses[name] = S.SKIPPED
        return self.statuses[name] is not S.WAITING

    def end(self, name: str) -> None:
        status = self.statuses[name] = self.case.outcomes[name]
        if self.case.graph.nodes[name].aborts and status in {S.FAILED, S.CANCELLED}:
            for other, now in self.statuses.items():
                if now not in FLOW_NODE_TERMINAL:
                    self.statuses[other] = S.CANCELLED
        else:
            self.settle()


@given(cases())
@settings(max_examples=300, deadline=None)
def test_a_run_goes_as_the_reference_says(case: Case) -> None:
    run = Run(case, dict.fromkeys(case.graph.nodes, NodeState(S.WAITING)))
    run.take(lambda _, given: first_step(case.graph, given))
    reference = Reference(case)
    assert run.statuses == reference.statuses
    for choice in case.choices:
        if not run.running:
            break
        name = sorted(run.running)[choice % len(run.running)]
        run.end(name)
        reference.end(name)
        assert run.statuses == reference.statuses
    # Every run ends, and nothing is left running, aborted or not.
    assert set(run.statuses.values()) <= FLOW_NODE_TERMINAL
    certain = certain_upstreams(case.graph)
    for name in run.started:
        position = run.started.index(name)
        for upstream in certain[name]:
            assert upstream in run.started[:position]
            assert run.statuses[upstream] is S.SUCCEEDED


def test_a_node_that_is_skipped_early_is_counted_once_by_those_behind_it() -> None:
    """One upstream succeeds, so its `when` is asked and skips it; the other is skipped in the same step."""
    graph = Graph(
        [
            GraphNode(name="good"),
            GraphNode(name="unmet", needs=("good",), trigger=TriggerRule.ANY_FAILED),
            GraphNode(
                name="early", needs=("good", "unmet"), trigger=TriggerRule.ANY_SUCCEEDED, conditional=True
            ),
            GraphNode(name="long"),
            GraphNode(name="last", needs=("early", "long"), trigger=TriggerRule.ALL_DONE),
        ]
    )
    states = {name: NodeState(S.WAITING) for name in ("unmet", "early", "last")}
    step = advance(graph, states, {"good": S.SUCCEEDED}, {"early": False})
    assert isinstance(step, Step)
    assert step.skip.keys() == {"unmet", "early"}
    assert step.start == []
    assert step.tallies["last"] == UpstreamCounts(skipped=1)


def messages(*nodes: GraphNode) -> list[tuple[int | None, str | None, str]]:
    return [tuple(problem) for problem in problems(nodes)]


def test_every_fault_of_a_graph_is_named_at_once() -> None:
    found = messages(
        GraphNode(name="a", needs=("c",)),
        GraphNode(name="b", needs=("a", "extra", "a")),
        GraphNode(name="c", needs=("b", "c")),
        GraphNode(name="extract", needs=("c",)),
        GraphNode(name="extract", trigger=TriggerRule.ANY_FAILED),
    )
    assert found == [
        (4, "name", 'the node "extract" is written twice: rename one of them.'),
        (1, "needs", '"a" is needed twice: remove one of them.'),
        (1, "needs", 'the node "extra" does not exist: did you mean "extract"?'),
        (2, "needs", '"c" needs itself: remove it.'),
        (0, "needs", "the nodes wait for each other: a → b → c → a. Remove one."),
        (3, None, "can never start: it depends on nodes that wait for each other."),
    ]


def test_a_node_that_can_never_start_is_refused() -> None:
    ((place, key, message),) = messages(
        GraphNode(name="load"),
        GraphNode(name="mourn", needs=("load",), trigger=TriggerRule.ANY_FAILED),
    )
    assert (place, key) == (1, "trigger")
    assert "on_failure: continue" in message
    assert not messages(
        GraphNode(name="load", aborts=False),
        GraphNode(name="mourn", needs=("load",), trigger=TriggerRule.ANY_FAILED),
    )


def test_size_and_depth_are_capped() -> None:
    chain = [GraphNode(name="n0"), *(GraphNode(name=f"n{i}", needs=(f"n{i - 1}",)) for i in range(1, 251))]
    assert messages(*chain) == [(250, None, "is 251 nodes deep, but the limit is 250: use sub-flows.")]
    assert not messages(*chain[:250])
    assert "at most 1000 nodes" in messages(*(GraphNode(name=f"n{i}") for i in range(1001)))[0][2]
    assert messages() == [(None, None, "the flow has no nodes: write at least one.")]
