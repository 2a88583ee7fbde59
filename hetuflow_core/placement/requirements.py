"""The requirements of a job for its agent, in canonical form.

Jobs with equal requirements share one placement class (`sched_placement`), found by digest. Differences
without effect must not change the digest: the order of lists, repeated conditions, default values.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, TypeVar

import msgspec

from hetuflow_core.durations import format_size, parse_size

# The pool of jobs and agents without a pool.
DEFAULT_POOL: Final = "default"
# Upper limit for retries that double the memory.
MOST_MEMORY: Final = 1 << 50

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


class Expression(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on one label of an agent."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class Preference(msgspec.Struct, frozen=True, kw_only=True):
    """An optional expression with its weight."""

    weight: int
    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class Affinity(msgspec.Struct, frozen=True, kw_only=True):
    required: tuple[Expression, ...] = ()
    preferred: tuple[Preference, ...] = ()


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of the same namespace with one of these names and all of these labels; empty matches all."""

    jobs: tuple[str, ...] = ()
    labels: dict[str, str] = {}


class UnlikedNeighbour(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbours to avoid if possible, with a weight."""

    weight: int
    jobs: tuple[str, ...] = ()
    labels: dict[str, str] = {}


class AntiAffinity(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs that an agent must not or should not run when it claims this work."""

    required: tuple[Neighbour, ...] = ()
    preferred: tuple[UnlikedNeighbour, ...] = ()


class Toleration(msgspec.Struct, frozen=True, kw_only=True):
    """Tolerated taints; without a key every key, without an effect every effect."""

    key: str | None = None
    operator: TolerationOperator = TolerationOperator.EQUAL
    value: str = ""
    effect: Effect | None = None


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """The resources of an agent that one instance uses."""

    cpu: float = 0
    memory: int = 0  # bytes
    gpu: int = 0


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """A job's `placement`; the default fits every agent of the default pool.

    Verdicts are valid per class and agent until the agent changes. Running jobs change constantly, so
    anti-affinity and free resources are not part of verdicts and are checked at each assignment.
    """

    labels: dict[str, str] = {}
    affinity: Affinity = Affinity()
    anti_affinity: AntiAffinity = AntiAffinity()
    tolerations: tuple[Toleration, ...] = ()
    resources: Resources = Resources()
    pool: str | None = None
    # Derived from the job's `run`; not keys of `placement` in the job file.
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
    """Return the requirements as in a job file, normalised and without defaults."""
    normal = normalised(requirements)
    resources = normal.resources
    return _without_empty(
        {
            "labels": normal.labels,
            "affinity": _without_empty(
                {
                    "required": [_condition(e) for e in normal.affinity.required],
                    "preferred": [{"weight": p.weight, **_condition(p)} for p in normal.affinity.preferred],
                }
            ),
            "anti_affinity": _without_empty(
                {
                    "required": [_neighbour(rule) for rule in normal.anti_affinity.required],
                    "preferred": [
                        {"weight": rule.weight, **_neighbour(rule)} for rule in normal.anti_affinity.preferred
                    ],
                }
            ),
            "tolerations": [_toleration(toleration) for toleration in normal.tolerations],
            "resources": _without_empty(
                {
                    "cpu": int(resources.cpu) if resources.cpu == int(resources.cpu) else resources.cpu,
                    "memory": format_size(resources.memory) if resources.memory else None,
                    "gpu": resources.gpu,
                }
            ),
            "pool": normal.pool,
            "executor": normal.executor,
            "user": normal.user,
        }
    )


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


def _condition(condition: Expression | Preference) -> dict[str, Any]:
    return _without_empty(
        {"key": condition.key, "operator": condition.operator.value, "values": list(condition.values)}
    )


def _neighbour(rule: Neighbour | UnlikedNeighbour) -> dict[str, Any]:
    return _without_empty({"jobs": list(rule.jobs), "labels": rule.labels})


def _toleration(toleration: Toleration) -> dict[str, Any]:
    return {"operator": toleration.operator.value} | _without_empty(
        {
            "key": toleration.key,
            "value": toleration.value,
            "effect": toleration.effect and toleration.effect.value,
        }
    )


def _without_empty(mapping: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in mapping.items() if value}
