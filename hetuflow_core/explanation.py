"""Explain the state of a task in words, by evaluating the conditions that the claim itself uses.

The reasons why an agent is unsuitable come from `placement`, free limits from `limits`, the retry decision
from `retry`. This module counts, sorts and formats them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import zip_longest
from types import MappingProxyType
from typing import Final
from uuid import UUID

from hetuflow_core import limits
from hetuflow_core.durations import format_duration
from hetuflow_core.limits import Scope
from hetuflow_core.placement import (
    LONGEST_DELAY,
    AgentFacts,
    AgentState,
    Placement,
    Refusal,
    Requirements,
    absent,
    busy,
    discomfort,
    latest_due,
)
from hetuflow_core.resources.explanations import (
    AgentsLooked,
    AgentVerdict,
    Obstacle,
    QueuePlace,
    RefusalCount,
    RetryDecision,
)
from hetuflow_core.retry import GiveUp, GiveUpReason, Retry

_MOST_SAMPLES: Final = 20
# Refusals that end without any action.
_TEMPORARY: Final = frozenset({"slots", "room", "anti_affinity", "preference"})
_ABLE: Final = "can run it now"
# Actions that remove a refusal; refusals that only time removes have no entry.
_REMEDIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "target": "Run the task again without naming an agent, or make that agent available.",
        "pool": "Start an agent of that pool, or change placement.pool.",
        "executor": "Start an agent that has the executor, or use another executor.",
        "user": "Allow the user on an agent (run_as), or remove run.user.",
        "labels": "Give an agent these labels, or change placement.labels.",
        "affinity": "Give an agent labels that match, or change placement.affinity.",
        "taints": "Add a toleration to placement.tolerations, or remove the taint from an agent.",
        "resources": "Start an agent with more resources, or request less in placement.resources.",
        "room": "Wait until a task on the agent ends, start another agent, or request less.",
        "anti_affinity": "Wait until that job ends on the agent, or start another agent.",
        "approval": "Approve the agent: hetuflow agent approve NAME.",
        "draining": "Resume the agent: hetuflow agent resume NAME.",
        "offline": "Start the agent again on its host.",
        "unreachable": "Check the agent's host and its network connection to the servers.",
        "token": "Give the agent a new token: hetuflow agent token create.",
        "slots": "Wait, start another agent, or give this agent more slots.",
    }
)
_GIVEN_UP: Final[Mapping[GiveUpReason, str]] = MappingProxyType(
    {
        GiveUpReason.FINAL: "This outcome is final and is never retried.",
        GiveUpReason.NOT_RETRIED: "The job's retry.on does not include this outcome.",
        GiveUpReason.ATTEMPTS_SPENT: "All attempts of retry.max_attempts are used.",
        GiveUpReason.QUARANTINED: "The task was lost too often: it may be crashing its agents.",
        GiveUpReason.DEADLINE: "Another attempt would not start before the task's deadline.",
    }
)


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit that the task counts against when it is claimed."""

    scope: Scope
    max: int
    in_use: int
    holders: tuple[UUID, ...] = ()


def full(uses: Sequence[LimitUse]) -> list[LimitUse]:
    """Return the limits that are reached, by the calculation of the claim."""
    return [use for use in uses if limits.room([use.scope], {use.scope: use.max - use.in_use}) == 0]


def limit_obstacle(use: LimitUse) -> Obstacle:
    used = f"{use.in_use} of {use.max} in use"
    tasks = list(use.holders)
    match limits.kind_of(use.scope.name):
        case limits.KEY_KIND:
            return Obstacle("key", f"Tasks with the same concurrency.key run first: {used}.", None, tasks)
        case limits.JOB_KIND:
            remedy = "Wait until one of them ends, or raise the job's concurrency.max."
            return Obstacle("concurrency", f"The job's concurrency.max is reached: {used}.", remedy, tasks)
        case _:
            name = use.scope.name
            remedy = (
                f"Wait until one of them ends, or raise the limit: hetuflow limit set {name} {use.max + 1}."
            )
            return Obstacle("limit", f"The limit {name} is reached: {used}.", remedy, tasks)


class AgentsTally:
    """Evaluates the conditions of the claim for one agent after another and stores only the results."""

    def __init__(self, placement: Placement, requirements: Requirements, target: UUID | None) -> None:
        self._placement = placement
        self._requirements = requirements
        self._target = target
        self._serving = 0
        self._counts: dict[str, int] = {}
        self._samples: dict[str, list[AgentVerdict]] = {}
        # (score, anti-affinity penalty, name) of the agents without a refusal.
        self._able: list[tuple[float, float, str]] = []

    def check(self, name: str, agent: AgentFacts, state: AgentState) -> None:
        self._serving += 1
        refusal = (
            self._placement.first_refusal(self._requirements, agent, target_agent_id=self._target)
            or absent(state)
            or busy(self._requirements, agent, state)
        )
        if refusal is not None:
            self._refuse(name, refusal)
            return
        score = self._placement.verdict(self._requirements, agent).score
        penalty = discomfort(self._requirements.anti_affinity, state.neighbours)
        self._able.append((score, penalty, name))

    def result(self, due_at: datetime, now: datetime, *, elsewhere: int | None = None) -> AgentsLooked:
        """Return the counts and a sample; less suitable agents wait for better ones for a short delay."""
        able = []
        best = max((score for score, _, _ in self._able), default=0.0)
        for score, penalty, name in sorted(self._able, key=lambda able: (able[1] - able[0], able[2])):
            delay = timedelta(0)
            if self._target is None:
                delay = self._placement.delay(score, best) + LONGEST_DELAY * penalty
            if now >= due_at > latest_due(now, prefetch=timedelta(0), delay=delay):
                self._refuse(name, Refusal("preference", "waits a moment for agents that suit better"))
            else:
                able.append(AgentVerdict(name, None, _ABLE))
        return AgentsLooked(self._serving, len(able), self._refusals(), self._sample(able), elsewhere)

    def _refuse(self, name: str, refusal: Refusal) -> None:
        code = refusal.filter
        self._counts[code] = self._counts.get(code, 0) + 1
        samples = self._samples.setdefault(code, [])
        if len(samples) < _MOST_SAMPLES:
            samples.append(AgentVerdict(name, code, refusal.reason))

    def _refusals(self) -> list[RefusalCount]:
        ordered = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        return [
            RefusalCount(
                code,
                count,
                f"{self._samples[code][0].agent} {self._samples[code][0].message}",
                _REMEDIES.get(code),
            )
            for code, count in ordered
        ]

    def _sample(self, able: Sequence[AgentVerdict]) -> list[AgentVerdict]:
        refused = [
            verdict
            for layer in zip_longest(*self._samples.values())
            for verdict in layer
            if verdict is not None
        ]
        return [*able[: max(_MOST_SAMPLES // 2, _MOST_SAMPLES - len(refused))], *refused][:_MOST_SAMPLES]


def obstacles_of_waiting(
    *,
    now: datetime,
    due_at: datetime,
    attempts_ended: int,
    uses: Sequence[LimitUse],
    agents: AgentsLooked | None,
    place: QueuePlace | None,
    namespace: str,
    target: str | None,
) -> list[Obstacle]:
    """Return the reasons why a pending task is not claimed, in the order in which they must be removed."""
    obstacles: list[Obstacle] = []
    if due_at > now:
        obstacles.append(_not_due(now, due_at, attempts_ended))
    obstacles += [limit_obstacle(use) for use in full(uses)]
    if agents is not None and agents.able == 0:
        obstacles.append(_no_able_agent(agents, namespace, target))
    if not obstacles and place is not None and (place.higher or place.earlier):
        obstacles.append(_behind(place))
    return obstacles


def _not_due(now: datetime, due_at: datetime, attempts_ended: int) -> Obstacle:
    left = format_duration(_rounded(due_at - now))
    if attempts_ended:
        number = attempts_ended + 1
        return Obstacle("retry_delay", f"Attempt {number} is due in {left}, at {format_time(due_at)}.")
    return Obstacle("not_due", f"The task is due in {left}, at {format_time(due_at)}.")


def _no_able_agent(agents: AgentsLooked, namespace: str, target: str | None) -> Obstacle:
    if agents.serving == 0:
        remedy = (
            f"Start an agent with the namespace {namespace} in agent.namespaces, and a token that allows it."
        )
        return Obstacle("no_agent", f"No agent serves the namespace {namespace}.", remedy)
    if target is not None:
        others = [refusal for refusal in agents.refusals if refusal.code != "target"]
        if not others:
            return Obstacle(
                "target",
                f"Only the agent {target} may run it, and it does not exist.",
                _REMEDIES["target"],
            )
        return Obstacle("target", f"Only one agent may run it: {others[0].example}.", others[0].remedy)
    main = agents.refusals[0]
    temporary = [refusal for refusal in agents.refusals if refusal.code in _TEMPORARY]
    if temporary:
        # A temporary refusal explains the wait better than agents that never fit.
        main = temporary[0]
    more = agents.serving - main.agents
    rest = f" ({more} others cannot run it for other reasons)" if more else ""
    many = (
        f"{main.agents} agents cannot run it now, for example: {main.example}"
        if main.agents > 1
        else main.example
    )
    code = main.code if main.code in _TEMPORARY else "placement"
    return Obstacle(code, f"{many}{rest}.", main.remedy)


def _behind(place: QueuePlace) -> Obstacle:
    more = " or more" if place.capped else ""
    parts = []
    if place.higher:
        parts.append(f"{place.higher} of higher priority")
    if place.earlier:
        parts.append(f"{place.earlier} that were due earlier")
    return Obstacle(
        "queue",
        f"Other tasks of the namespace come first: {' and '.join(parts)}{more}.",
        "Wait, start more agents, raise the task's priority, or raise the weight of the namespace.",
    )


def retry_decision(decision: Retry | GiveUp, due_at: datetime | None = None) -> RetryDecision:
    """Format a decision of `retry.decide`."""
    if isinstance(decision, Retry):
        when = "" if due_at is None else f" at {format_time(due_at)}"
        rule = "" if decision.rule is None else f" by retry.rules[{decision.rule}]"
        return RetryDecision(retried=True, code="retry", message=f"The task is retried{rule}{when}.")
    if decision.reason is GiveUpReason.RULED_OUT:
        message = f"retry.rules[{decision.rule}] rules out a retry."
    else:
        message = _GIVEN_UP[decision.reason]
    return RetryDecision(retried=False, code=decision.reason.value, message=message)


def format_time(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def _rounded(left: timedelta) -> timedelta:
    """Round to tenths of a second, and to whole seconds from ten seconds on."""
    digits = 1 if left < timedelta(seconds=10) else 0
    return timedelta(seconds=round(left.total_seconds(), digits))
