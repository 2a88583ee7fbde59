"""Why a task is where it is, in words; every condition is asked of the code that decides about it.

What an agent is refused for comes from `placement`, what a limit lacks from `limits`, whether it is tried
again from `retry`. Here the answers are counted, put in order and told.
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
# Refusals that pass by themselves.
_PASSING: Final = frozenset({"slots", "room", "anti_affinity", "preference"})
_ABLE: Final = "could take it now"
# What makes a refusal go away; time alone is nothing to say.
_REMEDIES: Final[Mapping[str, str]] = MappingProxyType(
    {
        "target": "Run it again without naming an agent, or get that agent to take work.",
        "pool": "Start an agent of that pool, or change placement.pool.",
        "executor": "Start an agent that has the executor, or name another one.",
        "user": "Allow the user on an agent (run_as), or take run.user out.",
        "labels": "Give an agent these labels, or change placement.labels.",
        "affinity": "Give an agent labels that fulfil it, or change placement.affinity.",
        "taints": "Add a toleration to placement.tolerations, or take the taint from an agent.",
        "resources": "Start an agent with more, or ask for less in placement.resources.",
        "room": "Wait until something there ends, start another agent, or ask for less.",
        "anti_affinity": "Wait until that job ends there, or start another agent.",
        "approval": "Approve it: hetuflow agent approve NAME.",
        "draining": "Let it work again: hetuflow agent resume NAME.",
        "offline": "Start it again on its host.",
        "unreachable": "Look at its host and at the network between.",
        "token": "Give it a new token: hetuflow agent token create.",
        "slots": "Wait, start another agent, or give this one more slots.",
    }
)
_GIVEN_UP: Final[Mapping[GiveUpReason, str]] = MappingProxyType(
    {
        GiveUpReason.FINAL: "Such an end is final: there is nothing to try again.",
        GiveUpReason.NOT_RETRIED: "The job's retry.on leaves such an end out.",
        GiveUpReason.ATTEMPTS_SPENT: "All of retry.max_attempts are spent.",
        GiveUpReason.QUARANTINED: "It was lost too often: something about it may be killing its agents.",
        GiveUpReason.DEADLINE: "Another attempt would not start before the task's deadline.",
    }
)


@dataclass(frozen=True, slots=True)
class LimitUse:
    """A limit that the task counts against once it is claimed."""

    scope: Scope
    max: int
    in_use: int
    holders: tuple[UUID, ...] = ()


def full(uses: Sequence[LimitUse]) -> list[LimitUse]:
    """Those without room, as a claim counts it."""
    return [use for use in uses if limits.room([use.scope], {use.scope: use.max - use.in_use}) == 0]


def told_limit(use: LimitUse) -> Obstacle:
    used = f"{use.in_use} of {use.max} in use"
    tasks = list(use.holders)
    match limits.kind_of(use.scope.name):
        case limits.KEY_KIND:
            return Obstacle("key", f"Others with the same concurrency.key go first: {used}.", None, tasks)
        case limits.JOB_KIND:
            remedy = "Wait until one of them ends, or raise the job's concurrency.max."
            return Obstacle("concurrency", f"The job's concurrency.max is reached: {used}.", remedy, tasks)
        case _:
            name = use.scope.name
            remedy = f"Wait until one of them ends, or raise it: hetuflow limit set {name} {use.max + 1}."
            return Obstacle("limit", f"The limit {name} is full: {used}.", remedy, tasks)


class AgentsTally:
    """Asks the claim's conditions of one agent after the other, and remembers the answers, not the agents."""

    def __init__(self, placement: Placement, requirements: Requirements, target: UUID | None) -> None:
        self._placement = placement
        self._requirements = requirements
        self._target = target
        self._serving = 0
        self._counts: dict[str, int] = {}
        self._samples: dict[str, list[AgentVerdict]] = {}
        # (score, how much it would mind its neighbours, name) of those without a refusal.
        self._able: list[tuple[float, float, str]] = []

    def look(self, name: str, agent: AgentFacts, standing: AgentState) -> None:
        self._serving += 1
        refusal = (
            self._placement.first_refusal(self._requirements, agent, target_agent_id=self._target)
            or absent(standing)
            or busy(self._requirements, agent, standing)
        )
        if refusal is not None:
            self._refuse(name, refusal)
            return
        score = self._placement.verdict(self._requirements, agent).score
        missed = discomfort(self._requirements.anti_affinity, standing.neighbours)
        self._able.append((score, missed, name))

    def result(self, due_at: datetime, now: datetime, *, elsewhere: int | None = None) -> AgentsLooked:
        """Return what was found; of those that could, the worse suited let others go first for a while."""
        able = []
        best = max((score for score, _, _ in self._able), default=0.0)
        for score, missed, name in sorted(self._able, key=lambda one: (one[1] - one[0], one[2])):
            delay = self._placement.delay(score, best) + LONGEST_DELAY * missed
            patient = timedelta(0) if self._target is not None else delay
            if now >= due_at > latest_due(now, prefetch=timedelta(0), delay=patient):
                self._refuse(
                    name, Refusal("preference", "lets agents that suit better go first for a moment")
                )
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
        ordered = sorted(self._counts.items(), key=lambda one: (-one[1], one[0]))
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
        in_turn = [
            verdict
            for layer in zip_longest(*self._samples.values())
            for verdict in layer
            if verdict is not None
        ]
        return [*able[: max(_MOST_SAMPLES // 2, _MOST_SAMPLES - len(in_turn))], *in_turn][:_MOST_SAMPLES]


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
    """What keeps a task from being claimed, in the order in which it would have to go away."""
    found: list[Obstacle] = []
    if due_at > now:
        found.append(_not_due(now, due_at, attempts_ended))
    found += [told_limit(use) for use in full(uses)]
    if agents is not None and agents.able == 0:
        found.append(_nobody(agents, namespace, target))
    if not found and place is not None and (place.higher or place.earlier):
        found.append(_behind(place))
    return found


def _not_due(now: datetime, due_at: datetime, attempts_ended: int) -> Obstacle:
    left = format_duration(_rounded(due_at - now))
    if attempts_ended:
        number = attempts_ended + 1
        return Obstacle(
            "retry_delay", f"It is tried again, as number {number}, in {left}, at {told_time(due_at)}."
        )
    return Obstacle("not_due", f"It is due in {left}, at {told_time(due_at)}.")


def _nobody(agents: AgentsLooked, namespace: str, target: str | None) -> Obstacle:
    if agents.serving == 0:
        remedy = (
            f"Start an agent with the namespace {namespace} in agent.namespaces, and a token that allows it."
        )
        return Obstacle("no_agent", f"No agent serves the namespace {namespace}.", remedy)
    if target is not None:
        others = [one for one in agents.refusals if one.code != "target"]
        if not others:
            return Obstacle(
                "target", f"It may go to the agent {target} only, which is not there.", _REMEDIES["target"]
            )
        return Obstacle("target", f"It may go to one agent only: {others[0].example}.", others[0].remedy)
    main = agents.refusals[0]
    momentary = [one for one in agents.refusals if one.code in _PASSING]
    if momentary:
        # Whoever would fit but for the moment is nearer than any number of agents that never will.
        main = momentary[0]
    more = agents.serving - main.agents
    rest = f" (and {more} others cannot for other reasons)" if more else ""
    many = (
        f"{main.agents} agents cannot take it now, such as: {main.example}"
        if main.agents > 1
        else main.example
    )
    code = main.code if main.code in _PASSING else "placement"
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
        f"Others of its namespace go first: {' and '.join(parts)}{more}.",
        "Wait, start more agents, raise its priority, or give the namespace more weight.",
    )


def told_decision(decision: Retry | GiveUp, due_at: datetime | None = None) -> RetryDecision:
    """What `retry.decide` has said, in words."""
    if isinstance(decision, Retry):
        when = "" if due_at is None else f" at {told_time(due_at)}"
        rule = "" if decision.rule is None else f" by retry.rules[{decision.rule}]"
        return RetryDecision(retried=True, code="retry", message=f"It is tried again{rule}{when}.")
    if decision.reason is GiveUpReason.RULED_OUT:
        message = f"retry.rules[{decision.rule}] says not to try again."
    else:
        message = _GIVEN_UP[decision.reason]
    return RetryDecision(retried=False, code=decision.reason.value, message=message)


def told_time(at: datetime) -> str:
    return at.isoformat(timespec="seconds")


def _rounded(left: timedelta) -> timedelta:
    """Without what nobody reads: tenths of a second, whole seconds from ten on."""
    digits = 1 if left < timedelta(seconds=10) else 0
    return timedelta(seconds=round(left.total_seconds(), digits))
