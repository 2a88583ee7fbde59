"""The requirements of a job for its agent, in canonical form.

Jobs with equal requirements share one placement class (`sched_placement`), found by digest. Differences
without effect must not change the digest: the order of lists, repeated conditions, default values.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import StrEnum
from hashlib import blake2b
from typing import Annotated, Any, ClassVar, Final, TypeAlias, TypeVar

import msgspec

from hetuflow_core.durations import parse_size
from hetuflow_core.fields import (
    LABEL_KEY,
    LABELS,
    NAME_PATTERN,
    SIZE,
    WORDS,
    AnyOf,
    Check,
    Key,
    Section,
    ValueReader,
    Written,
    matching,
    number,
    section,
    several,
    shape_of,
    whole,
)
from hetuflow_core.fields.json_schema import absent, given, when

# The pool of jobs and agents without a pool.
DEFAULT_POOL: Final = "default"
# Upper limit for retries that double the memory.
MOST_MEMORY: Final = 1 << 50
_MOST_CPU: Final = 100_000
_MOST_GPU: Final = 10_000
_MOST_WEIGHT: Final = 100
_WHOLE: Final = re.compile(r"-?(0|[1-9][0-9]{0,17})")

C = TypeVar("C", "Expression", "Preference")
E = TypeVar("E", "Expression", "Toleration")
U = TypeVar("U", "Neighbour", "UnlikedNeighbour")


class Operator(StrEnum):
    """How to compare an agent's label with the values of an expression."""

    IN = "In"
    NOT_IN = "NotIn"
    EXISTS = "Exists"
    DOES_NOT_EXIST = "DoesNotExist"
    GREATER = "Gt"
    LESS = "Lt"


class TolerationOperator(StrEnum):
    EQUAL = "Equal"
    EXISTS = "Exists"


class Effect(StrEnum):
    """The effect of a taint on work that does not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


Weight: TypeAlias = Annotated[
    int, whole(1, _MOST_WEIGHT), Key("How much it counts.", missing="set its weight")
]
LabelName: TypeAlias = Annotated[
    str,
    matching(LABEL_KEY, "the name of a label", summary="name of a label"),
    Key("Label of the agent.", missing="name a label"),
]
Comparison: TypeAlias = Annotated[
    Operator,
    Key("How the label is compared with `values`.", missing=f"use one of {', '.join(Operator)}"),
]
Values: TypeAlias = Annotated[
    tuple[str, ...],
    several(WORDS, tuple),
    Key("What the label is compared with; `Gt` and `Lt` need one whole number.", written=Written.SET),
]
NeighbourJobs: TypeAlias = Annotated[
    tuple[str, ...], several(WORDS, tuple), Key("Jobs of one of these names.", written=Written.SET)
]
NeighbourLabels: TypeAlias = Annotated[
    dict[str, str], LABELS, Key("Jobs with all of these labels.", written=Written.SET)
]


def _refuse_values(expression: Expression | Preference, at: Section) -> None:
    problem = _values_problem(expression.operator, expression.values)
    if problem is not None:
        at.refuse(problem)


def _values_problem(operator: Operator, values: tuple[str, ...]) -> str | None:
    if operator in (Operator.EXISTS, Operator.DOES_NOT_EXIST):
        return f"{operator} compares with nothing: remove values." if values else None
    if operator in (Operator.IN, Operator.NOT_IN):
        return None if values else f"{operator} needs at least one of values."
    if len(values) != 1 or not _WHOLE.fullmatch(values[0]):
        return f"{operator} needs one whole number in values."
    return None


_COMPARED: Final = Check(
    _refuse_values,
    when(
        {"properties": {"operator": {"enum": ["In", "NotIn", "Gt", "Lt"]}}, "required": ["operator"]},
        given("values"),
    ),
)
_NAMED: Final = AnyOf(
    ("jobs", "labels"),
    "name the jobs: by their names in jobs, by labels, or both.",
    empty=False,
)


class Expression(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on one label of an agent."""

    RULES: ClassVar = (_COMPARED,)

    key: LabelName
    operator: Comparison
    values: Values = ()


class Preference(msgspec.Struct, frozen=True, kw_only=True):
    """An optional expression with its weight."""

    RULES: ClassVar = (_COMPARED,)

    weight: Weight
    key: LabelName
    operator: Comparison
    values: Values = ()


class Affinity(msgspec.Struct, frozen=True, kw_only=True):
    required: Annotated[
        tuple[Expression, ...],
        several(section(Expression), tuple),
        Key("Conditions that an agent must fulfil.", written=Written.SET),
    ] = ()
    preferred: Annotated[
        tuple[Preference, ...],
        several(section(Preference), tuple),
        Key("Conditions by which one agent is preferred to another.", written=Written.SET),
    ] = ()


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of the same namespace with one of these names and all of these labels; empty matches all."""

    RULES: ClassVar = (_NAMED,)

    jobs: NeighbourJobs = ()
    labels: NeighbourLabels = {}


class UnlikedNeighbour(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbours to avoid if possible, with a weight."""

    RULES: ClassVar = (_NAMED,)

    weight: Weight
    jobs: NeighbourJobs = ()
    labels: NeighbourLabels = {}


class AntiAffinity(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that an agent must not or should not run when it claims this work."""

    required: Annotated[
        tuple[Neighbour, ...],
        several(section(Neighbour), tuple),
        Key("Jobs that must not run on the agent at the same time.", written=Written.SET),
    ] = ()
    preferred: Annotated[
        tuple[UnlikedNeighbour, ...],
        several(section(UnlikedNeighbour), tuple),
        Key("Jobs that should not run on the agent at the same time.", written=Written.SET),
    ] = ()


def _refuse_idle_parts(toleration: Toleration, at: Section) -> None:
    if toleration.operator is TolerationOperator.EXISTS and toleration.value:
        at.refuse("Exists compares with nothing: remove value.")
    if toleration.operator is TolerationOperator.EQUAL and "key" not in at.present:
        at.refuse("Equal needs a key: name one, or use the operator Exists.")


class Toleration(msgspec.Struct, frozen=True, kw_only=True):
    """Tolerated taints; without a key every key, without an effect every effect."""

    RULES: ClassVar = (Check(_refuse_idle_parts, when(absent("key"), given("operator"))),)

    key: Annotated[
        str | None,
        matching(LABEL_KEY, "the name of a taint", summary="name of a taint"),
        Key("Taint that is tolerated.", written=Written.SET, default_doc="every taint"),
    ] = None
    operator: Annotated[
        TolerationOperator, Key("`Equal` compares the value of the taint, `Exists` does not.")
    ] = TolerationOperator.EQUAL
    value: Annotated[str, WORDS, Key("Value of the taint.", written=Written.SET)] = ""
    effect: Annotated[
        Effect | None,
        Key("Effect of the taint.", written=Written.SET, default_doc="every effect"),
    ] = None


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of an agent that one instance uses."""

    cpu: Annotated[float, number(0, _MOST_CPU), Key("CPU cores.", written=Written.SET)] = 0
    memory: Annotated[int, SIZE, Key("Memory.", written=Written.SET)] = 0  # bytes
    gpu: Annotated[int, whole(0, _MOST_GPU), Key("GPUs.", written=Written.SET)] = 0


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """A job's `placement`; the default fits every agent of the default pool.

    Verdicts are valid per class and agent until the agent changes. Running jobs change constantly, so
    anti-affinity and free resources are not part of verdicts and are checked at each assignment.
    """

    DEFINITION: ClassVar = "placement"

    labels: Annotated[
        dict[str, str], LABELS, Key("Labels that an agent must have.", written=Written.SET)
    ] = {}
    affinity: Annotated[Affinity, Key("Conditions on the labels of an agent.", written=Written.SET)] = (
        Affinity()
    )
    anti_affinity: Annotated[
        AntiAffinity, Key("Jobs that should not run on the same agent.", written=Written.SET)
    ] = AntiAffinity()
    tolerations: Annotated[
        tuple[Toleration, ...],
        several(section(Toleration), tuple),
        Key("Taints of agents that do not keep the work away.", written=Written.SET),
    ] = ()
    resources: Annotated[
        Resources, Key("What an instance takes from the stock of its agent.", written=Written.SET)
    ] = Resources()
    pool: Annotated[
        str | None,
        matching(NAME_PATTERN, "the name of a pool", summary="name"),
        Key("Pool of agents.", written=Written.SET, default_doc=f"`{DEFAULT_POOL}`"),
    ] = None
    # What the agent must have besides, taken from the job's `run`; not a key of the job file's `placement`.
    executor: str | None = None
    user: str | None = None


def normalised(requirements: Requirements) -> Requirements:
    """Return the normal form of equivalent requirements."""
    affinity = requirements.affinity
    return Requirements(
        labels=dict(sorted(requirements.labels.items())),
        affinity=Affinity(
            required=_distinct(_normalised_condition(condition) for condition in affinity.required),
            # Weights add up, so equal preferences are kept.
            preferred=tuple(
                sorted((_normalised_condition(p) for p in affinity.preferred), key=msgspec.json.encode)
            ),
        ),
        anti_affinity=_normalised_apart(requirements.anti_affinity),
        tolerations=_distinct(requirements.tolerations),
        resources=msgspec.structs.replace(requirements.resources, cpu=round(requirements.resources.cpu, 3)),
        pool=None if requirements.pool == DEFAULT_POOL else requirements.pool,
        executor=requirements.executor,
        user=requirements.user,
    )


def canonical_requirements(requirements: Requirements) -> dict[str, Any]:
    """The requirements as a job file writes them, normalised, without defaults."""
    besides = {"executor": requirements.executor, "user": requirements.user}
    return {
        **shape_of(Requirements).write(normalised(requirements)),
        **{key: value for key, value in besides.items() if value},
    }


def _read(given: ValueReader) -> Requirements | None:
    requirements = shape_of(Requirements).read(given)
    return None if requirements is None else normalised(requirements)


PLACEMENT: Final = replace(section(Requirements), read=_read, write=canonical_requirements)


def requirements_from(document: Mapping[str, Any]) -> Requirements:
    """Parse the canonical form, which the database stores for a class."""
    resources = dict(document.get("resources", {}))
    if "memory" in resources:
        resources["memory"] = parse_size(resources["memory"])
    return msgspec.convert({**document, "resources": resources}, Requirements)


def adjusted(requirements: Requirements, *, memory: int | None, labels: Mapping[str, str]) -> Requirements:
    """Return the requirements of a retry with different memory (None: unchanged) or additional labels."""
    resources = requirements.resources
    if memory is not None:
        resources = msgspec.structs.replace(resources, memory=min(memory, max(MOST_MEMORY, resources.memory)))
    return normalised(
        msgspec.structs.replace(requirements, labels={**requirements.labels, **labels}, resources=resources)
    )


def digest(requirements: Requirements, limit_scopes: Iterable[str]) -> bytes:
    """Return the 32-byte key of a placement class; equal for equal requirements and limits."""
    meaning = {
        "requirements": canonical_requirements(requirements),
        "limit_scopes": sorted(set(limit_scopes)),
    }
    text = json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return blake2b(text.encode(), digest_size=32, person=b"hetuflow-class-1").digest()


def _normalised_condition(condition: C) -> C:
    return msgspec.structs.replace(condition, values=tuple(sorted(set(condition.values))))


def _normalised_apart(apart: AntiAffinity) -> AntiAffinity:
    required = {msgspec.json.encode(rule): rule for rule in map(_normalised_neighbour, apart.required)}
    return AntiAffinity(
        required=tuple(required[key] for key in sorted(required)),
        # Weights add up, so equal rules are kept.
        preferred=tuple(sorted(map(_normalised_neighbour, apart.preferred), key=msgspec.json.encode)),
    )


def _normalised_neighbour(rule: U) -> U:
    return msgspec.structs.replace(
        rule, jobs=tuple(sorted(set(rule.jobs))), labels=dict(sorted(rule.labels.items()))
    )


def _distinct(conditions: Iterable[E]) -> tuple[E, ...]:
    return tuple(sorted(set(conditions), key=msgspec.json.encode))
