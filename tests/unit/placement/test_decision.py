"""Which agents may take some work, which should, and what of a batch fits."""

from __future__ import annotations

from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.errors import Invalid
from hetuflow_core.placement import (
    LONGEST_DELAY,
    MOST_MEMORY,
    STANDARD_FILTERS,
    STANDARD_SCORES,
    Affinity,
    AgentFacts,
    Effect,
    Expression,
    Operator,
    Placement,
    Preference,
    Refusal,
    Requirements,
    Resources,
    Taint,
    Toleration,
    TolerationOperator,
    Verdict,
    adjusted,
    agent_labels,
    automatic_labels,
    canonical_requirements,
    evicting_taint,
    fit_batch,
    free,
    holds,
    normalised,
    parse_taint,
    requirements_from,
    times,
    tolerates,
    total,
)

GIB = 1024**3
AGENT_ID, OTHER_ID = UUID(int=1), UUID(int=2)
SPOT = Taint(key="spot", value="yes", effect=Effect.NO_SCHEDULE)
PLACEMENT = Placement()


def agent(**facts: Any) -> AgentFacts:
    return AgentFacts(**{"agent_id": AGENT_ID, "version": 1, "slots": 4, **facts})


def required(key: str, operator: Operator, *values: str) -> Requirements:
    condition = Expression(key=key, operator=operator, values=values)
    return Requirements(affinity=Affinity(required=(condition,)))


def preferring(*preferences: tuple[int, str]) -> Requirements:
    return Requirements(
        affinity=Affinity(
            preferred=tuple(
                Preference(weight=weight, key=key, operator=Operator.EXISTS) for weight, key in preferences
            )
        )
    )


@pytest.mark.parametrize(
    ("operator", "values", "label", "expected"),
    [
        (Operator.IN, ("eu", "us"), "us", True),
        (Operator.IN, ("eu", "us"), "asia", False),
        (Operator.IN, ("eu",), None, False),
        (Operator.NOT_IN, ("eu", "us"), "us", False),
        (Operator.NOT_IN, ("eu", "us"), "asia", True),
        (Operator.NOT_IN, ("eu",), None, True),
        (Operator.EXISTS, (), "", True),
        (Operator.EXISTS, (), None, False),
        (Operator.DOES_NOT_EXIST, (), "", False),
        (Operator.DOES_NOT_EXIST, (), None, True),
        (Operator.GREATER, ("8",), "9", True),
        (Operator.GREATER, ("8",), "8", False),
        (Operator.GREATER, ("8",), "10", True),  # numbers, not words
        (Operator.GREATER, ("-8",), "-7", True),
        (Operator.GREATER, ("8",), "many", False),
        (Operator.GREATER, ("8",), "1_000", False),
        (Operator.GREATER, ("8",), None, False),
        (Operator.LESS, ("8",), "7", True),
        (Operator.LESS, ("8",), "8", False),
        (Operator.LESS, ("8",), "", False),
        (Operator.LESS, ("8",), None, False),
    ],
)
def test_conditions(operator: Operator, values: tuple[str, ...], label: str | None, expected: bool) -> None:
    labels = {} if label is None else {"k": label}
    assert holds(Expression(key="k", operator=operator, values=values), labels) is expected


@settings(deadline=None)
@given(
    st.none() | st.text("0129-x", max_size=3), st.lists(st.text("0129", min_size=1, max_size=2), min_size=1)
)
def test_opposites_never_agree(label: str | None, values: list[str]) -> None:
    labels = {} if label is None else {"k": label}

    def answer(operator: Operator, *given_values: str) -> bool:
        return holds(Expression(key="k", operator=operator, values=given_values), labels)

    assert answer(Operator.IN, *values) != answer(Operator.NOT_IN, *values)
    assert answer(Operator.EXISTS) != answer(Operator.DOES_NOT_EXIST)
    assert not (answer(Operator.GREATER, values[0]) and answer(Operator.LESS, values[0]))


@pytest.mark.parametrize(
    ("toleration", "expected"),
    [
        (Toleration(key="spot", value="yes"), True),
        (Toleration(key="spot", value="no"), False),
        (Toleration(key="spot"), False),
        (Toleration(key="spot", operator=TolerationOperator.EXISTS), True),
        (Toleration(key="other", operator=TolerationOperator.EXISTS), False),
        (Toleration(operator=TolerationOperator.EXISTS), True),
        (Toleration(key="spot", value="yes", effect=Effect.NO_SCHEDULE), True),
        (Toleration(key="spot", value="yes", effect=Effect.NO_EXECUTE), False),
        (Toleration(operator=TolerationOperator.EXISTS, effect=Effect.NO_EXECUTE), False),
    ],
)
def test_tolerations(toleration: Toleration, expected: bool) -> None:
    assert tolerates(toleration, SPOT) is expected


@pytest.mark.parametrize(
    ("requirements", "facts", "refusal"),
    [
        (Requirements(), {}, None),
        (Requirements(), {"pools": frozenset({"default", "gpu"})}, None),
        (Requirements(pool="gpu"), {"pools": frozenset({"cpu", "gpu"})}, None),
        (Requirements(pool="default"), {}, None),
        (Requirements(pool="gpu"), {}, Refusal("pool", "serves the pool default, not gpu")),
        (
            Requirements(),
            {"pools": frozenset({"gpu", "big"})},
            Refusal("pool", "serves the pools big, gpu, not default"),
        ),
        (Requirements(executor="python"), {"executors": frozenset({"command", "python"})}, None),
        (
            Requirements(executor="python"),
            {"executors": frozenset({"command"})},
            Refusal("executor", "has no executor python"),
        ),
        (Requirements(labels={"zone": "eu"}), {"labels": {"zone": "eu", "ssd": "yes"}}, None),
        (
            Requirements(labels={"zone": "eu"}),
            {"labels": {"zone": "us"}},
            Refusal("labels", "has the label zone=us, zone=eu is required"),
        ),
        (
            Requirements(labels={"zone": "eu"}),
            {},
            Refusal("labels", "has no label zone, zone=eu is required"),
        ),
        (required("cores", Operator.GREATER, "8"), {"labels": {"cores": "16"}}, None),
        (
            required("cores", Operator.GREATER, "8"),
            {"labels": {"cores": "8"}},
            Refusal("affinity", "has the label cores=8, cores > 8 is required"),
        ),
        (
            required("cores", Operator.LESS, "8"),
            {},
            Refusal("affinity", "has no label cores, cores < 8 is required"),
        ),
        (
            required("zone", Operator.IN, "eu", "us"),
            {},
            Refusal("affinity", "has no label zone, zone in (eu, us) is required"),
        ),
        (
            required("zone", Operator.NOT_IN, "eu"),
            {"labels": {"zone": "eu"}},
            Refusal("affinity", "has the label zone=eu, zone not in (eu) is required"),
        ),
        (
            required("zone", Operator.EXISTS),
            {},
            Refusal("affinity", "has no label zone, any zone is required"),
        ),
        (
            required("old", Operator.DOES_NOT_EXIST),
            {"labels": {"old": "yes"}},
            Refusal("affinity", "has the label old=yes, no old is required"),
        ),
        (
            Requirements(),
            {"taints": (SPOT,)},
            Refusal("taints", "has the taint spot=yes:NoSchedule, which is not tolerated"),
        ),
        (
            Requirements(),
            {"taints": (Taint(key="down", effect=Effect.NO_EXECUTE),)},
            Refusal("taints", "has the taint down:NoExecute, which is not tolerated"),
        ),
        (Requirements(), {"taints": (Taint(key="meh", effect=Effect.PREFER_NO_SCHEDULE),)}, None),
        (Requirements(tolerations=(Toleration(key="spot", value="yes"),)), {"taints": (SPOT,)}, None),
        (
            Requirements(tolerations=(Toleration(key="spot", value="yes"),)),
            {"taints": (SPOT, Taint(key="gpu"))},
            Refusal("taints", "has the taint gpu:NoSchedule, which is not tolerated"),
        ),
        (
            Requirements(resources=Resources(cpu=4, memory=GIB, gpu=1)),
            # What is in use now rules nobody out for good.
            {"capacity": Resources(cpu=4, memory=GIB, gpu=1), "in_use": Resources(cpu=4), "load": 4},
            None,
        ),
        (
            Requirements(resources=Resources(cpu=4.5)),
            {"capacity": Resources(cpu=4)},
            Refusal("resources", "has 4 cpu, 4.5 are required"),
        ),
        (
            Requirements(resources=Resources(memory=2 * GIB)),
            {"capacity": Resources(memory=GIB)},
            Refusal("resources", "has 1Gi of memory, 2Gi are required"),
        ),
        (Requirements(user="reports"), {"run_as": frozenset({"reports"})}, None),
        (
            Requirements(user="reports"),
            {"run_as": frozenset({"backup"})},
            Refusal("user", "may not run tasks as reports"),
        ),
        (
            Requirements(resources=Resources(gpu=1)),
            {"capacity": Resources(cpu=64)},
            Refusal("resources", "has 0 gpu, 1 are required"),
        ),
    ],
)
def test_refusals(requirements: Requirements, facts: dict[str, Any], refusal: Refusal | None) -> None:
    assert PLACEMENT.first_refusal(requirements, agent(**facts)) == refusal


def test_work_for_one_agent_goes_nowhere_else() -> None:
    assert PLACEMENT.first_refusal(Requirements(), agent(), target_agent_id=AGENT_ID) is None
    refusal = PLACEMENT.first_refusal(Requirements(), agent(), target_agent_id=OTHER_ID)
    assert refusal == Refusal("target", "is not the target agent of this work")
    # Being the target is not enough.
    elsewhere = Requirements(pool="gpu")
    refusal = PLACEMENT.first_refusal(elsewhere, agent(), target_agent_id=AGENT_ID)
    assert refusal is not None
    assert refusal.filter == "pool"


def test_no_execute_ends_running_work_and_no_schedule_does_not() -> None:
    down = Taint(key="down", effect=Effect.NO_EXECUTE)
    assert evicting_taint(Requirements(), (SPOT, down)) == down
    assert evicting_taint(Requirements(), (SPOT,)) is None
    tolerating = Requirements(tolerations=(Toleration(key="down", operator=TolerationOperator.EXISTS),))
    assert evicting_taint(tolerating, (down,)) is None


def test_the_more_preferences_hold_the_better() -> None:
    wish = preferring((30, "ssd"), (10, "fast"))
    labels = [{}, {"fast": "1"}, {"ssd": "1"}, {"ssd": "1", "fast": "1"}]
    scores = [PLACEMENT.verdict(wish, agent(labels=some)).score for some in labels]
    assert scores == sorted(set(scores))
    assert scores[-1] == 1
    assert PLACEMENT.verdict(Requirements(), agent()).score == 1


def test_an_agent_that_would_rather_not_comes_second() -> None:
    taint = Taint(key="batch", effect=Effect.PREFER_NO_SCHEDULE)
    reluctant, willing = agent(taints=(taint,)), agent()
    assert (
        PLACEMENT.verdict(Requirements(), reluctant).score < PLACEMENT.verdict(Requirements(), willing).score
    )
    tolerating = Requirements(tolerations=(Toleration(key="batch", operator=TolerationOperator.EXISTS),))
    assert PLACEMENT.verdict(tolerating, reluctant).score == 1


def test_load_chooses_between_equals_and_is_no_part_of_the_verdict() -> None:
    memory = Requirements(resources=Resources(memory=GIB))
    capacity = Resources(cpu=8, memory=4 * GIB)
    idle = agent(capacity=capacity)
    busy = agent(capacity=capacity, load=2)
    full = agent(capacity=capacity, in_use=Resources(memory=3 * GIB), load=1)
    assert PLACEMENT.score(memory, idle) > PLACEMENT.score(memory, busy) > PLACEMENT.score(memory, full)
    # Work that asks for no memory does not mind where it is short.
    assert PLACEMENT.score(Requirements(), full) > PLACEMENT.score(Requirements(), busy)
    verdicts = {PLACEMENT.verdict(memory, each) for each in (idle, busy, full)}
    assert verdicts == {Verdict(None, 1.0)}


def test_a_preference_is_worth_more_than_an_idle_agent() -> None:
    wish = preferring((1, "ssd"))
    assert PLACEMENT.score(wish, agent(labels={"ssd": "1"}, load=3)) > PLACEMENT.score(wish, agent())


@pytest.mark.parametrize(
    ("score", "best", "seconds"),
    [(1, 1, 0), (0.5, 0.5, 0), (0.9, 0.5, 0), (0, 1, 3), (0.5, 1, 1.5), (0.25, 0.5, 0.75)],
)
def test_a_lower_score_waits_longer(score: float, best: float, seconds: float) -> None:
    assert PLACEMENT.delay(score, best) == timedelta(seconds=seconds)


@settings(deadline=None)
@given(st.floats(0, 1), st.floats(0, 1), st.floats(0, 1))
def test_delays_are_bounded_and_ordered(one: float, other: float, best: float) -> None:
    low, high = sorted((one, other))
    assert timedelta(0) <= PLACEMENT.delay(high, best) <= PLACEMENT.delay(low, best) <= LONGEST_DELAY


class NightShift:
    name, weight, lasting = "night_shift", 1.0, True

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        return None if agent.labels.get("shift") == "night" else "sleeps"

    def score(self, requirements: Requirements, agent: AgentFacts) -> float:
        return 7.0  # beyond what is allowed


def test_others_may_add_filters_and_scores() -> None:
    extended = PLACEMENT.extended([NightShift()], [NightShift()])
    assert extended.first_refusal(Requirements(), agent()) == Refusal("night_shift", "sleeps")
    assert extended.verdict(Requirements(), agent()) == Verdict(Refusal("night_shift", "sleeps"), 0.0)
    # What stands there already is asked first.
    refusal = extended.first_refusal(Requirements(pool="gpu"), agent())
    assert refusal is not None
    assert refusal.filter == "pool"
    night = agent(labels={"shift": "night"})
    assert extended.first_refusal(Requirements(), night) is None
    assert extended.verdict(Requirements(), night).score == 1
    assert PLACEMENT.filters == STANDARD_FILTERS


def test_names_are_taken_once_and_weights_count() -> None:
    with pytest.raises(ValueError, match="filter pool is already in use"):
        PLACEMENT.extended([STANDARD_FILTERS[0]])
    with pytest.raises(ValueError, match="score headroom is already in use"):
        PLACEMENT.extended([], [STANDARD_SCORES[-1]])
    weightless = NightShift()
    weightless.weight = 0.0
    with pytest.raises(ValueError, match="weighs 0"):
        PLACEMENT.extended([], [weightless])


def test_without_scores_all_agents_are_equal() -> None:
    assert Placement(scores=()).verdict(preferring((1, "ssd")), agent()) == Verdict(None, 1.0)


def test_rows_that_do_not_fit_are_passed_over() -> None:
    rows = [(1, Resources(cpu=2)), (2, Resources(cpu=4)), (3, Resources(memory=GIB)), (4, Resources(cpu=2))]
    assert fit_batch(rows, Resources(cpu=4, memory=GIB), 10) == [1, 3, 4]
    assert fit_batch(rows, Resources(cpu=4, memory=GIB), 2) == [1, 3]
    assert fit_batch(rows, Resources(cpu=4, memory=GIB), 0) == []


@pytest.mark.parametrize(
    ("wanted", "fitting"),
    [
        (Resources(), 9),
        (Resources(cpu=0.1), 9),
        (Resources(cpu=0.3), 3),
        (Resources(memory=GIB // 4), 4),
        (Resources(gpu=1), 2),
        (Resources(cpu=0.3, memory=GIB, gpu=1), 1),
        (Resources(gpu=3), 0),
    ],
)
def test_as_many_fit_as_the_scarcest_kind_allows(wanted: Resources, fitting: int) -> None:
    assert times(wanted, Resources(cpu=1, memory=GIB, gpu=2), 9) == fitting


@pytest.mark.parametrize(("cpu", "ten"), [(0.1, 1), (0.819, 8.19), (1.001, 10.01)])
def test_ten_tenths_are_one(cpu: float, ten: float) -> None:
    rows = [(number, Resources(cpu=cpu)) for number in range(20)]
    assert len(fit_batch(rows, Resources(cpu=ten), 100)) == 10
    assert total(wanted for _, wanted in rows[:10]) == Resources(cpu=ten)
    assert free(Resources(cpu=ten), total(wanted for _, wanted in rows[:10])) == Resources()


amounts = st.builds(
    Resources,
    cpu=st.integers(0, 4000).map(lambda milli: milli / 1000),
    memory=st.integers(0, 100),
    gpu=st.integers(0, 3),
)


@settings(deadline=None)
@given(st.lists(amounts, max_size=20), amounts, st.integers(0, 12))
def test_a_batch_never_exceeds_what_is_free_and_leaves_out_nothing_that_fits(
    wanted: list[Resources], stock: Resources, slots: int
) -> None:
    rows = list(enumerate(wanted))
    chosen = fit_batch(rows, stock, slots)
    taken = total(wanted[row] for row in chosen)
    assert chosen == sorted(chosen)
    assert len(chosen) <= slots
    assert taken.cpu <= stock.cpu
    assert taken.memory <= stock.memory
    assert taken.gpu <= stock.gpu
    if len(chosen) < slots:
        left = [row for row in rows if row[0] not in chosen]
        assert fit_batch(left, free(stock, taken), slots) == []


def test_what_is_overcommitted_leaves_nothing() -> None:
    assert free(Resources(cpu=1, memory=5), Resources(cpu=2, memory=9, gpu=1)) == Resources()


@pytest.mark.parametrize(
    ("facts", "labels"),
    [
        (("Linux", "x86_64", "Build-1"), {"os": "linux", "arch": "amd64", "hostname": "build-1"}),
        (("Linux", "aarch64", "pi"), {"os": "linux", "arch": "arm64", "hostname": "pi"}),
        (("Darwin", "arm64", "mac"), {"os": "darwin", "arch": "arm64", "hostname": "mac"}),
        (("Linux", "riscv64", "x"), {"os": "linux", "arch": "riscv64", "hostname": "x"}),
    ],
)
def test_automatic_labels(facts: tuple[str, str, str], labels: dict[str, str]) -> None:
    os, arch, hostname = facts
    assert automatic_labels(os=os, arch=arch, hostname=hostname) == labels


def test_what_the_operator_says_stands() -> None:
    automatic = {"os": "linux", "arch": "", "hostname": "a"}
    labels = agent_labels({"hostname": "b", "zone": "eu"}, automatic)
    assert labels == {"os": "linux", "hostname": "b", "zone": "eu"}


@pytest.mark.parametrize(
    ("text", "taint"),
    [
        ("spot=yes:NoSchedule", SPOT),
        (" gpu:NoExecute ", Taint(key="gpu", effect=Effect.NO_EXECUTE)),
        ("a/b.c=:PreferNoSchedule", Taint(key="a/b.c", effect=Effect.PREFER_NO_SCHEDULE)),
    ],
)
def test_taints_as_people_write_them(text: str, taint: Taint) -> None:
    assert parse_taint(text) == taint
    assert parse_taint(str(taint)) == taint


@pytest.mark.parametrize(
    "text", ["", "spot", "spot=yes", ":NoSchedule", "a b:NoSchedule", "a=b=c:NoSchedule"]
)
def test_what_is_no_taint_is_refused(text: str) -> None:
    with pytest.raises(Invalid, match="write one such as spot=yes:NoSchedule"):
        parse_taint(text)


def test_an_unknown_effect_is_refused_with_those_there_are() -> None:
    with pytest.raises(Invalid, match="use one of NoSchedule, PreferNoSchedule, NoExecute"):
        parse_taint("spot:NoSchedul")


def test_a_class_is_read_back_as_it_was_kept() -> None:
    asked = Requirements(
        labels={"zone": "eu"},
        affinity=Affinity(
            required=(Expression(key="cores", operator=Operator.GREATER, values=("8",)),),
            preferred=(Preference(weight=5, key="ssd", operator=Operator.EXISTS),),
        ),
        tolerations=(Toleration(key="spot", value="yes", effect=Effect.NO_SCHEDULE),),
        resources=Resources(cpu=0.5, memory=512 * 1024**2, gpu=1),
        pool="batch",
        executor="python",
    )
    assert requirements_from(canonical_requirements(asked)) == normalised(asked)
    assert requirements_from({}) == Requirements()


def test_the_executor_and_the_pool_tell_classes_apart() -> None:
    assert canonical_requirements(Requirements(executor="python")) == {"executor": "python"}
    # Two ways to say the same.
    assert canonical_requirements(Requirements(pool="default")) == canonical_requirements(Requirements())


def test_a_retry_may_ask_for_more() -> None:
    asked = Requirements(labels={"zone": "eu", "size": "small"}, resources=Resources(cpu=1, memory=GIB))
    more = adjusted(asked, memory=2 * GIB, labels={"size": "big"})
    assert more.resources == Resources(cpu=1, memory=2 * GIB)
    assert more.labels == {"zone": "eu", "size": "big"}
    assert adjusted(asked, memory=None, labels={}) == normalised(asked)
    assert adjusted(asked, memory=1 << 90, labels={}).resources.memory == MOST_MEMORY
