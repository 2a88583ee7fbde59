"""What a job asks of the agent that runs it, in one canonical form.

Jobs that ask for the same share one class (`sched_placement`), found by digest. So whatever cannot change a
decision must not change the digest: the order of lists, repeated conditions, values that are the default.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from enum import StrEnum
from hashlib import blake2b
from typing import Any, Final, TypeVar

import msgspec

from hetuflow_core.durations import format_size, parse_size

# The pool of work that names none and of agents that name none.
DEFAULT_POOL: Final = "default"
# No machine has more; retries that double the memory each time stop here.
MOST_MEMORY: Final = 1 << 50

C = TypeVar("C", "Expression", "Preference")
E = TypeVar("E", "Expression", "Toleration")
U = TypeVar("U", "Neighbour", "UnlikedNeighbour")


class Operator(StrEnum):
    """How an agent's label is compared with the values of an expression."""

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
    """What a taint of an agent does to work that does not tolerate it."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


class Expression(msgspec.Struct, frozen=True, kw_only=True):
    """A condition on one label of an agent."""

    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class Preference(msgspec.Struct, frozen=True, kw_only=True):
    """An expression that need not hold, and how much it is worth when it does."""

    weight: int
    key: str
    operator: Operator
    values: tuple[str, ...] = ()


class Affinity(msgspec.Struct, frozen=True, kw_only=True):
    required: tuple[Expression, ...] = ()
    preferred: tuple[Preference, ...] = ()


class Neighbour(msgspec.Struct, frozen=True, kw_only=True):
    """Jobs of the same namespace: of one of these names, with all of these labels; empty asks nothing."""

    jobs: tuple[str, ...] = ()
    labels: dict[str, str] = {}


class UnlikedNeighbour(msgspec.Struct, frozen=True, kw_only=True):
    """Neighbours that are put up with if need be, and how much it is worth to have none of them."""

    weight: int
    jobs: tuple[str, ...] = ()
    labels: dict[str, str] = {}


class AntiAffinity(msgspec.Struct, frozen=True, kw_only=True):
    """What an agent should not be running when it takes this work."""

    required: tuple[Neighbour, ...] = ()
    preferred: tuple[UnlikedNeighbour, ...] = ()


class Toleration(msgspec.Struct, frozen=True, kw_only=True):
    """Taints this work puts up with; no key means every key, no effect means every effect."""

    key: str | None = None
    operator: TolerationOperator = TolerationOperator.EQUAL
    value: str = ""
    effect: Effect | None = None


class Resources(msgspec.Struct, frozen=True, kw_only=True):
    """What one instance takes from an agent's stock; zero takes nothing."""

    cpu: float = 0
    memory: int = 0  # bytes
    gpu: int = 0


class Requirements(msgspec.Struct, frozen=True, kw_only=True):
    """A job's `placement`; the default fits every agent of the default pool.

    Verdicts hold per class and agent until the agent itself changes. What it runs changes all the time, so
    anti-affinity is no part of them: like resources it is looked at whenever work is dealt.
    """

    labels: dict[str, str] = {}
    affinity: Affinity = Affinity()
    anti_affinity: AntiAffinity = AntiAffinity()
    tolerations: tuple[Toleration, ...] = ()
    resources: Resources = Resources()
    pool: str | None = None
    # What the agent must have besides, taken from the job's `run`; not a key of the job file's `placement`.
    executor: str | None = None
    user: str | None = None


def normalised(requirements: Requirements) -> Requirements:
    """The one way to say what these requirements say."""
    affinity = requirements.affinity
    return Requirements(
        labels=dict(sorted(requirements.labels.items())),
        affinity=Affinity(
            required=_distinct(_normalised_condition(condition) for condition in affinity.required),
            # Preferences add up, so two equal ones are worth more than one.
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
    """The requirements as a job file writes them, normalised, without whatever is the default."""
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
                    "required": [_neighbour(one) for one in normal.anti_affinity.required],
                    "preferred": [
                        {"weight": one.weight, **_neighbour(one)} for one in normal.anti_affinity.preferred
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
    """The requirements a canonical form stands for: what the database keeps of a class."""
    resources = dict(document.get("resources", {}))
    if "memory" in resources:
        resources["memory"] = parse_size(resources["memory"])
    return msgspec.convert({**document, "resources": resources}, Requirements)


def adjusted(requirements: Requirements, *, memory: int | None, labels: Mapping[str, str]) -> Requirements:
    """The requirements of a retry that asks for other memory (None: the same) or for further labels."""
    resources = requirements.resources
    if memory is not None:
        resources = msgspec.structs.replace(resources, memory=min(memory, max(MOST_MEMORY, resources.memory)))
    return normalised(
        msgspec.structs.replace(requirements, labels={**requirements.labels, **labels}, resources=resources)
    )


def digest(requirements: Requirements, limit_scopes: Iterable[str]) -> bytes:
    """What a class is found by: the same 32 bytes for whatever asks for the same."""
    meaning = {
        "requirements": canonical_requirements(requirements),
        "limit_scopes": sorted(set(limit_scopes)),
    }
    text = json.dumps(meaning, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return blake2b(text.encode(), digest_size=32, person=b"hetuflow-class-1").digest()


def _normalised_condition(condition: C) -> C:
    return msgspec.structs.replace(condition, values=tuple(sorted(set(condition.values))))


def _normalised_apart(apart: AntiAffinity) -> AntiAffinity:
    required = {msgspec.json.encode(one): one for one in map(_normalised_neighbour, apart.required)}
    return AntiAffinity(
        required=tuple(required[key] for key in sorted(required)),
        # Two equal ones are worth more than one, as with affinity.
        preferred=tuple(sorted(map(_normalised_neighbour, apart.preferred), key=msgspec.json.encode)),
    )


def _normalised_neighbour(one: U) -> U:
    return msgspec.structs.replace(
        one, jobs=tuple(sorted(set(one.jobs))), labels=dict(sorted(one.labels.items()))
    )


def _distinct(conditions: Iterable[E]) -> tuple[E, ...]:
    return tuple(sorted(set(conditions), key=msgspec.json.encode))


def _condition(condition: Expression | Preference) -> dict[str, Any]:
    return _without_empty(
        {"key": condition.key, "operator": condition.operator.value, "values": list(condition.values)}
    )


def _neighbour(one: Neighbour | UnlikedNeighbour) -> dict[str, Any]:
    return _without_empty({"jobs": list(one.jobs), "labels": one.labels})


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
