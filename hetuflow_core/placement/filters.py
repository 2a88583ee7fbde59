"""What rules an agent out. One class per reason; `explain` quotes what they say.

A filter looks at the lasting facts of an agent only, so that its verdict may be kept. It answers None if the
work fits, or the rest of a sentence that begins with the agent's name: "has no label zone, …".
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
    """Agents of a pool serve that pool alone; who names none is in the pool `default`."""

    name: ClassVar[str] = "pool"

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        wanted = requirements.pool or DEFAULT_POOL
        served = agent.pools or frozenset({DEFAULT_POOL})
        if wanted in served:
            return None
        return f"serves the {_counted('pool', served)}, not {wanted}"


class ExecutorFilter:
    name: ClassVar[str] = "executor"

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        wanted = requirements.executor
        return None if wanted is None or wanted in agent.executors else f"has no executor {wanted}"


class UserFilter:
    name: ClassVar[str] = "user"

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        wanted = requirements.user
        return None if wanted is None or wanted in agent.run_as else f"may not run tasks as {wanted}"


class LabelFilter:
    name: ClassVar[str] = "labels"

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        for key, wanted in requirements.labels.items():
            value = agent.labels.get(key)
            if value is None:
                return f"has no label {key}, {key}={wanted} is required"
            if value != wanted:
                return f"has the label {key}={value}, {key}={wanted} is required"
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
                return f"has {has}, {_wish(condition)} is required"
        return None


class TaintFilter:
    name: ClassVar[str] = "taints"

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        for taint in untolerated(requirements, agent.taints, Effect.NO_SCHEDULE, Effect.NO_EXECUTE):
            return f"has the taint {taint}, which is not tolerated"
        return None


class ResourceFilter:
    """Whether it would fit on the agent with nothing else there; what is free is counted per batch."""

    name: ClassVar[str] = "resources"

    def refuses(self, requirements: Requirements, agent: AgentFacts) -> str | None:
        wanted, capacity = requirements.resources, agent.capacity
        short = lacking(wanted, capacity)
        if short == "cpu":
            return f"has {capacity.cpu:g} cpu, {wanted.cpu:g} are required"
        if short == "memory":
            return f"has {format_size(capacity.memory)} of memory, {format_size(wanted.memory)} are required"
        if short == "gpu":
            return f"has {capacity.gpu} gpu, {wanted.gpu} are required"
        return None


# What is most telling comes first: explain shows the first refusal.
STANDARD_FILTERS: Final[tuple[Filter, ...]] = (
    PoolFilter(),
    ExecutorFilter(),
    UserFilter(),
    LabelFilter(),
    AffinityFilter(),
    TaintFilter(),
    ResourceFilter(),
)


def _wish(condition: Expression) -> str:
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
