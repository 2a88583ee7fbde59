from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings, strategies as st

from hetuflow_core.placement import (
    Affinity,
    AntiAffinity,
    Effect,
    Expression,
    Neighbour,
    Operator,
    Preference,
    Requirements,
    Resources,
    Toleration,
    TolerationOperator,
    UnlikedNeighbour,
    canonical_requirements,
    digest,
    normalised,
)

words = st.text("abc", min_size=1, max_size=3)
expressions = st.builds(
    Expression, key=words, operator=st.just(Operator.IN), values=st.lists(words, min_size=1).map(tuple)
)
preferences = st.builds(
    Preference,
    weight=st.integers(1, 100),
    key=words,
    operator=st.just(Operator.IN),
    values=st.lists(words, min_size=1).map(tuple),
)
tolerations = st.builds(
    Toleration,
    key=st.none() | words,
    operator=st.sampled_from(TolerationOperator),
    value=st.just(""),
    effect=st.none() | st.sampled_from(Effect),
)
neighbours = {
    "jobs": st.lists(words, max_size=3).map(tuple),
    "labels": st.dictionaries(words, words, min_size=1, max_size=2),
}
requirements = st.builds(
    Requirements,
    anti_affinity=st.builds(
        AntiAffinity,
        required=st.lists(st.builds(Neighbour, **neighbours), max_size=3).map(tuple),
        preferred=st.lists(
            st.builds(UnlikedNeighbour, weight=st.integers(1, 100), **neighbours), max_size=3
        ).map(tuple),
    ),
    labels=st.dictionaries(words, words, max_size=4),
    affinity=st.builds(
        Affinity,
        required=st.lists(expressions, max_size=4).map(tuple),
        preferred=st.lists(preferences, max_size=4).map(tuple),
    ),
    tolerations=st.lists(tolerations, max_size=4).map(tuple),
    resources=st.builds(Resources, cpu=st.floats(0, 64), memory=st.integers(0, 2**40), gpu=st.integers(0, 8)),
    pool=st.none() | words,
)
scopes = st.lists(words.map("tool:{}".format), max_size=4)

ZONES = Requirements(
    affinity=Affinity(required=(Expression(key="zone", operator=Operator.IN, values=("eu", "us")),))
)


@settings(deadline=None)
@given(requirements, scopes, st.randoms(use_true_random=False))
def test_order_and_repetition_do_not_make_another_class(
    asked: Requirements, limits: list[str], random: Any
) -> None:
    def shuffled(given: Any) -> list[Any]:
        items = list(given)
        random.shuffle(items)
        return items

    def reordered(condition: Any) -> Any:
        values = shuffled(condition.values * 2)
        return msgspec.structs.replace(condition, values=tuple(values))

    def renamed(neighbour: Any) -> Any:
        labels = dict(shuffled(neighbour.labels.items()))
        return msgspec.structs.replace(neighbour, jobs=tuple(shuffled(neighbour.jobs * 2)), labels=labels)

    same = Requirements(
        labels=dict(shuffled(asked.labels.items())),
        affinity=Affinity(
            required=tuple(reordered(e) for e in shuffled(asked.affinity.required * 2)),
            preferred=tuple(reordered(p) for p in shuffled(asked.affinity.preferred)),
        ),
        anti_affinity=AntiAffinity(
            required=tuple(renamed(one) for one in shuffled(asked.anti_affinity.required * 2)),
            preferred=tuple(renamed(one) for one in shuffled(asked.anti_affinity.preferred)),
        ),
        tolerations=tuple(shuffled(asked.tolerations * 2)),
        resources=asked.resources,
        pool=asked.pool,
    )
    assert canonical_requirements(same) == canonical_requirements(asked)
    assert digest(same, shuffled(limits * 2)) == digest(asked, limits)


@settings(deadline=None)
@given(requirements, requirements)
def test_what_asks_for_something_else_is_another_class(one: Requirements, other: Requirements) -> None:
    assert (digest(one, []) == digest(other, [])) == (normalised(one) == normalised(other))


@settings(deadline=None)
@given(requirements)
def test_normalising_twice_changes_nothing(asked: Requirements) -> None:
    assert normalised(normalised(asked)) == normalised(asked)


@pytest.mark.parametrize(
    "other",
    [
        Requirements(),
        Requirements(labels={"zone": "eu"}),
        Requirements(pool="gpu"),
        Requirements(resources=Resources(gpu=1)),
        Requirements(tolerations=(Toleration(operator=TolerationOperator.EXISTS),)),
        Requirements(
            affinity=Affinity(
                required=(Expression(key="zone", operator=Operator.NOT_IN, values=("eu", "us")),)
            )
        ),
    ],
)
def test_every_part_counts(other: Requirements) -> None:
    assert digest(other, []) != digest(ZONES, [])


def test_limit_scopes_belong_to_the_class() -> None:
    assert len({digest(ZONES, scopes) for scopes in ([], ["tool:a"], ["tool:b"], ["tool:a", "tool:b"])}) == 4


def test_two_equal_preferences_are_worth_more_than_one() -> None:
    once = Preference(weight=5, key="ssd", operator=Operator.EXISTS)
    one, two = (Requirements(affinity=Affinity(preferred=(once,) * times)) for times in (1, 2))
    assert digest(one, []) != digest(two, [])


def test_the_digest_is_the_same_on_every_machine_and_in_every_version() -> None:
    # Classes are found by it in the database: a change of the algorithm is a migration.
    assert (
        digest(Requirements(), []).hex() == "583d4750f788c892e5881b8d2f1fe5f19b61c0c5f803e814e123c25f2c784e8d"
    )
    assert (
        digest(ZONES, ["tool:a"]).hex() == "48590955062bc27f93d994e9bf1adb10c519e3ab320422823eb1855b1dbf20b9"
    )


def test_the_canonical_form_speaks_as_the_job_file() -> None:
    asked = Requirements(
        labels={"zone": "eu"},
        affinity=Affinity(
            required=(Expression(key="cores", operator=Operator.GREATER, values=("8",)),),
            preferred=(Preference(weight=5, key="ssd", operator=Operator.EXISTS),),
        ),
        tolerations=(Toleration(key="spot", value="yes", effect=Effect.NO_SCHEDULE),),
        resources=Resources(cpu=1.0, memory=512 * 1024**2),
        pool="batch",
    )
    assert canonical_requirements(asked) == {
        "labels": {"zone": "eu"},
        "affinity": {
            "required": [{"key": "cores", "operator": "Gt", "values": ["8"]}],
            "preferred": [{"weight": 5, "key": "ssd", "operator": "Exists"}],
        },
        "tolerations": [{"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
        "resources": {"cpu": 1, "memory": "512Mi"},
        "pool": "batch",
    }
    assert canonical_requirements(Requirements()) == {}
