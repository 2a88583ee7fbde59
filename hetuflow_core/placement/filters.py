"""Filters that exclude an agent, one class per reason; `explain` quotes their messages.

A filter uses only the lasting properties of an agent, so that its result can be cached. It returns None if
the work fits, otherwise a sentence without its subject, the agent's name: "has no label zone, …".
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar, Final, Protocol, runtime_checkable

from hetuflow_core.durations import format_size
from hetuflow_core.placement.agents import AgentFacts
from hetuflow_core.placement.label_matching import holds, untolerated
from hetuflow_core.placement.requirements import DEFAULT_POOL, Effect, Expression, Operator, Requirements
from hetuflow_core.placement.resource_stock import lacking


@runtime_checkable
class Filter(Protocol):
    @property
    def name(self) -> str: ...

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None: ...


class PoolFilter:
    """Agents serve only their pools; agents and jobs without a pool belong to the pool `default`."""

    name: ClassVar[str] = "pool"

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        required = requirements.pool or DEFAULT_POOL
        served = agent.pools or frozenset({DEFAULT_POOL})
        if required in served:
            return None
        return f"serves the {_counted('pool', served)}, not {required}"


class ExecutorFilter:
    name: ClassVar[str] = "executor"

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        required = requirements.executor
        return None if required is None or required in agent.executors else f"has no executor {required}"


class UserFilter:
    name: ClassVar[str] = "user"

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        required = requirements.user
        return None if required is None or required in agent.run_as else f"may not run tasks as {required}"


class LabelFilter:
    name: ClassVar[str] = "labels"

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        for key, required in requirements.labels.items():
            value = agent.labels.get(key)
            if value is None:
                return f"has no label {key}, {key}={required} is required"
            if value != required:
                return f"has the label {key}={value}, {key}={required} is required"
        return None


class AffinityFilter:
    name: ClassVar[str] = "affinity"

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        for condition in requirements.affinity.required:
            if not holds(condition, agent.labels):
                value = agent.labels.get(condition.key)
                has = (
                    f"the label {condition.key}={value}" if value is not None else f"no label {condition.key}"
                )
                return f"has {has}, {_in_words(condition)} is required"
        return None


class TaintFilter:
    name: ClassVar[str] = "taints"

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        for taint in untolerated(requirements, agent.taints, Effect.NO_SCHEDULE, Effect.NO_EXECUTE):
            return f"has the taint {taint}, which is not tolerated"
        return None


class ResourceFilter:
    """Whether the work fits on the empty agent; free resources are checked per batch."""

    name: ClassVar[str] = "resources"

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        required, capacity = requirements.resources, agent.capacity
        short = lacking(required, capacity)
        if short == "cpu":
            return f"has {capacity.cpu:g} cpu, {required.cpu:g} are required"
        if short == "memory":
            return (
                f"has {format_size(capacity.memory)} of memory, {format_size(required.memory)} are required"
            )
        if short == "gpu":
            return f"has {capacity.gpu} gpu, {required.gpu} are required"
        return None


# The most specific filters come first, because explain shows the first refusal.
STANDARD_FILTERS: Final[tuple[Filter, ...]] = (
    PoolFilter(),
    ExecutorFilter(),
    UserFilter(),
    LabelFilter(),
    AffinityFilter(),
    TaintFilter(),
    ResourceFilter(),
)


def _in_words(condition: Expression) -> str:
    values = ", ".join(condition.values)
    match condition.operator:
        case Operator.EXISTS:
            return f"any {condition.key}"
        case Operator.DOES_NOT_EXIST:
            return f"no {condition.key}"
        case Operator.IN:
            return f"{condition.key} in ({values})"
        case Operator.NOT_IN:
            return f"{condition.key} not in ({values})"
        case Operator.GREATER:
            return f"{condition.key} > {values}"
        case Operator.LESS:
            return f"{condition.key} < {values}"


def _counted(noun: str, names: Iterable[str]) -> str:
    words = sorted(names)
    return f"{noun}{'s' if len(words) > 1 else ''} {', '.join(words)}"
