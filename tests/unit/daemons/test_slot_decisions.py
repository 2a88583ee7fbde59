"""Decisions about slots: a small world in which they are carried out always comes to what it should be."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from uuid import UUID

import pytest
from hypothesis import example, given, settings, strategies as st

from hetuflow_core.daemon import (
    DaemonAgent,
    DaemonHost,
    DaemonSpec,
    DaemonState,
    EndInstance,
    EndReason,
    FreeFromAgent,
    LiveInstance,
    RetireSlot,
    Slot,
    SlotShare,
    SlotState,
    StartInstance,
    decide,
    describe,
    show,
    spread,
)
from hetuflow_core.daemon.slot_decisions import TIED_FOR
from hetuflow_core.states import InstanceStatus

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC)
PENDING, RESERVED, RUNNING = InstanceStatus.PENDING, InstanceStatus.RESERVED, InstanceStatus.RUNNING
A, B, C = UUID(int=1), UUID(int=2), UUID(int=3)


def agent(id_: UUID, *, fits: bool = True, reachable: bool = True, draining: bool = False) -> DaemonAgent:
    return DaemonAgent(id_, fits=fits and not draining, reachable=reachable, draining=draining)


def slot(number: int, status: InstanceStatus | None = RUNNING, **columns: object) -> Slot:
    names = {"agent": "agent_id", "target": "target_agent_id"}
    of_live = {"agent", "target", "ready", "cancel_requested", "due_at"}
    given_live = {names.get(key, key): value for key, value in columns.items() if key in of_live}
    rest = {key: value for key, value in columns.items() if key not in of_live}
    live = None
    if status is not None:
        live = LiveInstance(UUID(int=100 + number), status, **{"due_at": NOW, "ready": True, **given_live})  # type: ignore[arg-type] # by name
    return Slot(number, **{"template": "v1", "live": live, **rest})  # type: ignore[arg-type] # by name


def daemon(*slots: Slot, template: str = "v1", **spec: object) -> DaemonState:
    return DaemonState(DaemonSpec(**spec), template, slots)  # type: ignore[arg-type] # by name


def ended(actions: list[object]) -> list[tuple[int, EndReason]]:
    return [(one.slot, one.reason) for one in actions if isinstance(one, EndInstance)]


def test_what_is_missing_is_started_and_what_is_there_is_let_be() -> None:
    assert decide(daemon(slot(0), replicas=3), [], NOW) == [StartInstance(1), StartInstance(2)]
    assert decide(daemon(slot(0), slot(1), replicas=2), [], NOW) == []


def test_the_highest_slots_go_first() -> None:
    found = decide(daemon(slot(0), slot(1), slot(2), replicas=1), [], NOW)
    assert ended(found) == [(2, EndReason.SCALED_DOWN), (1, EndReason.SCALED_DOWN)]


def test_a_stopped_daemon_lets_everything_go_once() -> None:
    view = DaemonState(
        None, "", [slot(0), slot(1, None), slot(2, None, retired=True), slot(3, cancel_requested=True)]
    )
    assert decide(view, [], NOW) == [RetireSlot(1), EndInstance(0, UUID(int=100), EndReason.STOPPED)]


@pytest.mark.parametrize(
    ("columns", "starts"),
    [
        ({}, True),
        ({"rests": True}, False),
        ({"rests": True, "replace": True}, True),
        ({"rests": True, "template": "v0"}, True),
    ],
)
def test_what_rests_is_left_alone_until_it_is_another(columns: dict[str, object], starts: bool) -> None:
    assert decide(daemon(slot(0, None, **columns)), [], NOW) == ([StartInstance(0)] if starts else [])


def test_what_rested_elsewhere_does_not_rest_on_the_agent_that_takes_its_slot() -> None:
    """It was a replica, or another agent's; of its own an agent gets none again."""
    others, own = slot(0, None, rests=True), slot(0, None, rests=True, agent_id=B)
    running = slot(1, agent_id=A, agent=A)
    assert decide(daemon(others, running, per_agent=True), [agent(A), agent(B)], NOW) == [StartInstance(0, B)]
    assert decide(daemon(own, running, per_agent=True), [agent(A), agent(B)], NOW) == []


@pytest.mark.parametrize(("rested", "gone"), [("v1", []), ("v2", [1])])
def test_what_is_about_to_start_again_is_waited_for(rested: str, gone: list[int]) -> None:
    """One that rests for good is not, or nothing would ever be updated beside it."""
    view = daemon(slot(0, None, rests=True, template=rested), slot(1), template="v2", replicas=2)
    assert ended(decide(view, [], NOW)) == [(number, EndReason.UPDATED) for number in gone]


@pytest.mark.parametrize(
    ("slots", "share", "gone"),
    [
        ([slot(0), slot(1), slot(2)], SlotShare(), [0]),
        ([slot(0), slot(1), slot(2)], SlotShare(number=2), [0, 1]),
        ([slot(0), slot(1), slot(2)], SlotShare(number=67, percent=True), [0, 1]),
        ([slot(0), slot(1), slot(2)], SlotShare(number=1, percent=True), [0]),
        # One that is missing uses up what is allowed; one that is out of date and missing goes for nothing.
        ([slot(0), slot(1), slot(2, PENDING, template="v2")], SlotShare(), []),
        ([slot(0), slot(1), slot(2, PENDING)], SlotShare(), [2]),
        ([slot(0), slot(1, ready=False), slot(2, ready=False)], SlotShare(), [1, 2]),
        ([slot(0, cancel_requested=True), slot(1), slot(2)], SlotShare(), []),
    ],
)
def test_an_update_takes_as_many_as_it_may(slots: list[Slot], share: SlotShare, gone: list[int]) -> None:
    found = decide(daemon(*slots, template="v2", replicas=3, max_unavailable=share), [], NOW)
    assert ended(found) == [(number, EndReason.UPDATED) for number in gone]


def test_a_restart_that_was_asked_for_rolls_too() -> None:
    found = decide(daemon(slot(0, replace=True), slot(1, replace=True), replicas=2), [], NOW)
    assert ended(found) == [(0, EndReason.RESTARTED)]


def test_what_is_on_a_drained_agent_moves() -> None:
    view = daemon(slot(0, agent=A), slot(1, agent=B), replicas=2)
    assert ended(decide(view, [agent(A), agent(B, draining=True)], NOW)) == [(1, EndReason.AGENT_DRAINED)]
    assert decide(view, [agent(A), agent(B, reachable=False)], NOW) == [], "its lease decides"


@pytest.mark.parametrize(
    ("taker", "waited", "untied"),
    [
        (agent(A), timedelta(0), False),
        (agent(A), TIED_FOR + timedelta(seconds=1), True),
        (agent(A, draining=True), timedelta(0), True),
        (agent(A, reachable=False), timedelta(0), True),
        (agent(B), timedelta(0), True),
    ],
)
def test_what_is_offered_in_vain_is_offered_to_all(
    taker: DaemonAgent, waited: timedelta, untied: bool
) -> None:
    view = daemon(slot(0, PENDING, target=A, due_at=NOW - waited))
    assert decide(view, [taker], NOW) == ([FreeFromAgent(0, UUID(int=100))] if untied else [])


def test_what_is_to_end_is_offered_to_nobody() -> None:
    outdated = slot(0, PENDING, target=A, due_at=NOW - TIED_FOR - timedelta(seconds=1), template="old")
    assert [type(action) for action in decide(daemon(outdated), [agent(A)], NOW)] == [EndInstance]


def test_one_per_agent() -> None:
    view = daemon(slot(0, agent_id=A, agent=A), per_agent=True)
    assert decide(view, [agent(A), agent(B), agent(C, fits=False)], NOW) == [StartInstance(1, B)]
    assert ended(decide(view, [agent(A, draining=True)], NOW)) == [(0, EndReason.AGENT_LEFT)]
    assert decide(view, [agent(A, reachable=False)], NOW) == []


def test_an_agent_that_is_gone_leaves_its_slot_to_another() -> None:
    view = daemon(slot(0, None, agent_id=A, retired=True), slot(1, agent_id=B, agent=B), per_agent=True)
    assert decide(view, [agent(B), agent(C)], NOW) == [StartInstance(0, C)]
    assert decide(view, [agent(A), agent(B)], NOW) == [StartInstance(0, A)]


def test_replicas_become_one_per_agent_where_they_are() -> None:
    view = daemon(slot(0, agent=B), slot(1, agent=A), per_agent=True)
    assert decide(view, [agent(A), agent(B)], NOW) == []


@dataclass
class World:
    """What decisions are carried out in; agents do what they are told."""

    spec: DaemonSpec | None
    template: str
    agents: dict[UUID, DaemonAgent]
    slots: dict[int, Slot] = field(default_factory=dict)
    made: int = 0

    def round(self) -> int:
        view = DaemonState(self.spec, self.template, list(self.slots.values()))
        before = self.available()
        actions = decide(view, list(self.agents.values()), NOW)
        ends = [one for one in actions if isinstance(one, EndInstance)]
        spared = sum(self._was_available(end) and end.slot in self._wanted() for end in ends)
        if self.spec is not None and spared:
            missing = len(self._wanted() - self.resting()) - (before - spared)
            assert missing <= self.spec.max_unavailable.of(len(self._wanted())), "too many at once"
        for action in actions:
            self._do(action)
        return len(actions)

    def _do(self, action: object) -> None:
        match action:
            case StartInstance(number, agent_id):
                before = self.slots.get(number, Slot(number))
                assert before.live is None, "two in one slot"
                self.made += 1
                live = LiveInstance(UUID(int=10_000 + self.made), PENDING, NOW, target_agent_id=agent_id)
                self.slots[number] = Slot(number, agent_id, self.template, live=live)
            case EndInstance(number, instance_id, _):
                live = self.slots[number].live
                assert live is not None
                assert live.instance_id == instance_id
                assert not live.cancel_requested, "asked twice"
                self.slots[number] = replace(
                    self.slots[number],
                    live=None if live.status is PENDING else replace(live, cancel_requested=True),
                )
            case RetireSlot(number):
                assert self.slots[number].live is None
                self.slots[number] = replace(self.slots[number], retired=True, rests=False, replace=False)
            case FreeFromAgent(number, _):
                live = self.slots[number].live
                assert live is not None
                self.slots[number] = replace(self.slots[number], live=replace(live, target_agent_id=None))

    def work(self) -> bool:
        """Agents take what waits, and end what they are asked to; return whether anything happened."""
        before = dict(self.slots)
        able = sorted(id_ for id_, one in self.agents.items() if one.takes_work)
        for number, one in before.items():
            live = one.live
            if live is None:
                continue
            if live.cancel_requested:
                self.slots[number] = replace(one, live=None)
            elif (
                live.status is PENDING and (live.target_agent_id in able or not live.target_agent_id) and able
            ):
                taker = live.target_agent_id or able[number % len(able)]
                self.slots[number] = replace(
                    one, live=replace(live, status=RUNNING, agent_id=taker, ready=True)
                )
        return self.slots != before

    def available(self) -> int:
        wanted = self._wanted()
        return sum(
            number in wanted and one.live is not None and one.live.available
            for number, one in self.slots.items()
        )

    def resting(self) -> set[int]:
        """Slots in which what should be there has ended, and nothing is to follow."""
        return {
            number
            for number, one in self.slots.items()
            if one.rests and one.live is None and one.template == self.template and not one.replace
        }

    def _was_available(self, end: EndInstance) -> bool:
        live = self.slots[end.slot].live
        return live is not None and live.available

    def _wanted(self) -> set[int]:
        if self.spec is None:
            return set()
        if not self.spec.per_agent:
            return set(range(self.spec.replicas))
        bound = {one.agent_id: number for number, one in self.slots.items() if one.agent_id}
        return {bound[id_] for id_, one in self.agents.items() if one.takes_work and id_ in bound}

    def rest(self) -> None:
        for _ in range(200):
            if not self.round() and not self.work():
                return
        raise AssertionError("it never comes to rest")


AGENTS = [UUID(int=number) for number in range(1, 5)]
CHANGES = st.one_of(
    st.tuples(st.just("replicas"), st.integers(0, 5)),
    st.tuples(st.just("per_agent"), st.just(0)),
    st.tuples(st.just("stop"), st.just(0)),
    st.tuples(st.just("update"), st.integers(0, 3)),
    st.tuples(st.sampled_from(["join", "drain", "delete", "lose"]), st.integers(0, 3)),
    st.tuples(st.sampled_from(["crash", "finish", "restart"]), st.integers(0, 4)),
    st.tuples(st.just("round"), st.just(0)),
    st.tuples(st.just("work"), st.just(0)),
)


def change(world: World, what: str, number: int) -> None:
    wanted = {
        "replicas": DaemonSpec(replicas=number, max_unavailable=SlotShare(number=1 + number % 2)),
        "per_agent": DaemonSpec(per_agent=True),
        "stop": None,
    }
    if what in wanted:
        world.spec = wanted[what]
    elif what == "update":
        world.template = f"v{number}"
    elif what in {"crash", "finish", "restart"}:
        change_slot(world, what, number)
    elif what == "round":
        world.round()
    elif what == "work":
        world.work()
    else:
        change_agent(world, what, AGENTS[number % len(AGENTS)])


def change_slot(world: World, what: str, number: int) -> None:
    known = world.slots.get(number)
    if known is None or known.retired:
        return
    if what == "restart":
        world.slots[number] = replace(known, replace=True)
    elif known.live is not None and known.live.agent_id:
        world.slots[number] = replace(known, live=None, rests=what == "finish")


def change_agent(world: World, what: str, chosen: UUID) -> None:
    if what == "delete":
        world.agents.pop(chosen, None)
    else:
        world.agents[chosen] = agent(chosen, draining=what == "drain", reachable=what != "lose")
    if what in {"delete", "lose"}:
        for place, one in world.slots.items():
            if one.live is not None and one.live.agent_id == chosen:
                world.slots[place] = replace(one, live=None)


@settings(max_examples=150)
@given(st.lists(CHANGES, max_size=25))
@example([("round", 0), ("update", 1), ("work", 0), ("finish", 0)])
@example([("round", 0), ("per_agent", 0), ("work", 0), ("finish", 0)])
@example([("round", 0), ("work", 0), ("finish", 0), ("restart", 1)])
def test_whatever_happens_it_comes_to_what_it_should_be(changes: list[tuple[str, int]]) -> None:
    world = World(DaemonSpec(replicas=2), "v0", {AGENTS[0]: agent(AGENTS[0])})
    for what, number in changes:
        change(world, what, number)
    world.agents[AGENTS[3]] = agent(AGENTS[3])
    world.rest()
    spec = world.spec
    live = {number: one for number, one in world.slots.items() if one.live is not None}
    resting = world.resting()
    if spec is None:
        assert live == {}
        assert all(one.retired for one in world.slots.values())
    elif spec.per_agent:
        able = {id_ for id_, one in world.agents.items() if one.takes_work}
        done = {world.slots[number].agent_id for number in resting}
        assert {one.live.agent_id for one in live.values() if one.live} == able - done
        assert len(live) == len(able - done)
    else:
        assert live.keys() == set(range(spec.replicas)) - resting
    assert {one.template for one in live.values()} <= {world.template}
    assert not any(one.replace for one in live.values())


def test_spreading_takes_the_emptiest_of_the_daemon_then_the_idlest() -> None:
    hosts = [DaemonHost(A, slots=4, load=3), DaemonHost(B, slots=4), DaemonHost(C, slots=1, load=1)]
    assert spread(3, hosts, []) == [B, A, B]
    assert spread(1, hosts, [B]) == [A]
    assert spread(6, hosts, []) == [B, A, B, B, B, None]
    assert spread(1, [], []) == [None]


@pytest.mark.parametrize(
    ("state", "view"),
    [
        (SlotState.STARTING, {"status": "pending"}),
        (SlotState.STARTING, {"status": "reserved", "crashes": 1, "due_at": NOW}),
        (SlotState.BACKING_OFF, {"status": "pending", "crashes": 1, "due_at": NOW + timedelta(seconds=1)}),
        (SlotState.RUNNING, {"status": "running"}),
        (SlotState.READY, {"status": "running", "ready": True}),
        (SlotState.STOPPING, {"status": "running", "ready": True, "cancel_requested": True}),
        (SlotState.STOPPED, {"status": None}),
        (SlotState.STOPPED, {"status": None, "rests": True, "last_status": "succeeded"}),
        (SlotState.FAILED, {"status": None, "rests": True, "last_status": "failed"}),
    ],
)
def test_states(state: SlotState, view: dict[str, object]) -> None:
    assert show(now=NOW, **view) is state  # type: ignore[arg-type] # by name


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (
            DaemonSpec(),
            "keeps one instance running; an instance that ends is restarted, after 1s up to 5m if",
        ),
        (DaemonSpec(replicas=3), "keeps 3 instances running"),
        (DaemonSpec(per_agent=True), "keeps one instance running on every agent"),
    ],
)
def test_in_words(spec: DaemonSpec, words: str) -> None:
    assert describe(spec).startswith(words)
