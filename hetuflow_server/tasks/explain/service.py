"""Why a task is where it is: asks of each condition the code that decides about it, and tells the answers."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import timedelta
from typing import Any
from uuid import UUID

from hetuflow_core.access.permissions import Permission
from hetuflow_core.durations import format_duration
from hetuflow_core.errors import NotFound
from hetuflow_core.explanation import (
    AgentsTally,
    LimitUse,
    format_time,
    full,
    limit_obstacle,
    obstacles_of_waiting,
    retry_decision,
)
from hetuflow_core.placement import Requirements, Resources, free, total
from hetuflow_core.resources.explanations import (
    AgentsLooked,
    Explanation,
    HeldClaim,
    Obstacle,
    RetryDecision,
    WaitingNode,
)
from hetuflow_core.retry import GiveUp, GiveUpReason, InstanceOutcome, Retry, decide
from hetuflow_core.states import HeldReason, InstanceStatus
from hetuflow_server.jobs.versions import JobVersions
from hetuflow_server.logs.output_tail import output_tail
from hetuflow_server.placement.rules import placement
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.queue.capacity import Capacity
from hetuflow_server.queue.end_decisions import DEADLINE
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.schedules.overlap import store as overlap_store
from hetuflow_server.tasks.explain import store
from hetuflow_server.tasks.explain.store import LastEnd, OpenNode, Subject

_AGENTS_AT_ONCE = 500
_MOST_NODES = 20
_MOST_UNDER_WAY = 5
_MOST_NAMED = 3
# Why a task was ended for a reason of its own: nothing was decided about a retry.
_ENDED_BY_ORDER = "It was ended on purpose, so it is not tried again."
_FORGOTTEN = "It is not tried again; what decided that looked at something that is kept no longer."


class TaskExplanations:
    def __init__(self, database: Database, capacity: Capacity, versions: JobVersions) -> None:
        self._database = database
        self._capacity = capacity
        self._versions = versions
        self._placement = placement()
        # Looking at ten thousand agents takes a while; those who ask for that take turns.
        self._turn = asyncio.Lock()

    async def explain(self, context: RequestContext, task_id: UUID) -> Explanation:
        async with self._database.transaction(context) as connection:
            found = await store.subject(connection, task_id)
            if found is None or not context.sees(found.namespace):
                raise NotFound("There is no such task.", code="task.not_found")
            end = await store.last_end(connection, task_id)
            said = await self._said(connection, context, found, end)
        return Explanation(
            task_id=found.id,
            namespace=found.namespace,
            job=found.job,
            status=found.status,
            reason=found.reason,
            due_at=found.due_at,
            deadline_at=found.deadline_at,
            looked_at=found.now,
            last_end=None if end is None else end.shown,
            **said,
        )

    async def _said(
        self, connection: Connection, context: RequestContext, found: Subject, end: LastEnd | None
    ) -> dict[str, Any]:
        if found.finished_at is not None:
            return await self._finished(connection, found, end)
        match found.instance_status:
            case InstanceStatus.PENDING:
                return await self._pending(connection, context, found)
            case InstanceStatus.HELD:
                return await self._held(connection, found)
            case InstanceStatus.RESERVED | InstanceStatus.RUNNING:
                return await self._claimed(connection, found)
            case _:
                summary = (
                    "It has not ended and nothing of it is in the queue: it ended this moment, or is lost."
                )
                remedy = "Look again; if it stays so: hetuflow doctor --repair."
                return _stopped_by([Obstacle("no_instance", summary, remedy)])

    async def _pending(
        self, connection: Connection, context: RequestContext, found: Subject
    ) -> dict[str, Any]:
        await self._capacity.classes.learn(connection, [_class(found)])
        uses = await self._uses(connection, found)
        agents = await self._agents(connection, context, found)
        place = None if found.target_agent_id is not None else await store.place(connection, found)
        obstacles = obstacles_of_waiting(
            now=found.now,
            due_at=found.due_at,
            attempts_ended=found.attempts + found.losses,
            uses=uses,
            agents=agents,
            place=place,
            namespace=found.namespace,
            target=found.target,
        )
        said = _stopped_by(obstacles) if obstacles else _claimable(agents)
        return {**said, "agents": agents, "place": place}

    async def _uses(self, connection: Connection, found: Subject) -> list[LimitUse]:
        """Return the limits it counts against; of the full ones, who has what there is."""
        scopes = self._capacity.scopes_of(found.namespace_id, _class(found), found.concurrency_key)
        uses = await store.limit_uses(connection, found.namespace_id, [scope.name for scope in scopes])
        without_room = full(uses)
        return [
            replace(use, holders=await store.holders(connection, use.scope)) if use in without_room else use
            for use in uses
        ]

    async def _agents(self, connection: Connection, context: RequestContext, found: Subject) -> AgentsLooked:
        requirements = self._capacity.classes.of(_class(found)).requirements
        tally = AgentsTally(self._placement, requirements, found.target_agent_id)
        async with self._turn:
            after = ""
            while True:
                page = await store.agents(connection, found.namespace, after, _AGENTS_AT_ONCE)
                await self._look(connection, found, requirements, tally, page)
                if len(page) < _AGENTS_AT_ONCE:
                    break
                after = page[-1].session.name
                # Others are served between two pages.
                await asyncio.sleep(0)
        sees_all = context.principal.rights.allows_everywhere(Permission.AGENTS_READ)
        elsewhere = await store.count_elsewhere(connection, found.namespace) if sees_all else None
        return tally.result(found.due_at, found.now, elsewhere=elsewhere)

    async def _look(
        self,
        connection: Connection,
        found: Subject,
        requirements: Requirements,
        tally: AgentsTally,
        page: list[store.AgentThere],
    ) -> None:
        ids = [one.session.id for one in page]
        held = await store.held_by(connection, ids)
        await self._capacity.classes.learn(connection, {one for classes in held.values() for one in classes})
        apart = requirements.anti_affinity
        beside = (
            await store.neighbours(connection, ids, found.namespace_id, found.namespace)
            if apart.required or apart.preferred
            else {}
        )
        for one in page:
            agent, classes = one.session.facts, held.get(one.session.id, {})
            standing = one.standing(
                agent.slots - sum(classes.values()),
                left=free(agent.capacity, self._taken(classes)),
                neighbours=tuple(beside.get(one.session.id, ())),
            )
            tally.check(one.session.name, agent, standing)

    def _taken(self, classes: dict[int, int]) -> Resources:
        known = self._capacity.classes
        return total(known.of(one).resources for one, count in classes.items() for _ in range(count))

    async def _held(self, connection: Connection, found: Subject) -> dict[str, Any]:
        match found.held_reason:
            case HeldReason.KEY:
                return _stopped_by(await self._behind_key(connection, found))
            case HeldReason.OVERLAP | HeldReason.QUEUE:
                return _stopped_by([await _behind_schedule(connection, found)])
            case HeldReason.FLOW:
                if found.due_at > found.now:
                    due = f"The run of this flow begins when it is due, at {format_time(found.due_at)}."
                    return _stopped_by([Obstacle("not_due", due)])
                return _stopped_by(
                    [Obstacle("flow", "The run of this flow is about to begin.", "Wait a moment.")]
                )
            case _:
                return _stopped_by([Obstacle(str(found.held_reason), "It is held.")])

    async def _behind_key(self, connection: Connection, found: Subject) -> list[Obstacle]:
        await self._capacity.classes.learn(connection, [_class(found)])
        uses = await self._uses(connection, found)
        ahead = await store.held_before(connection, found)
        mine = [use for use in uses if use.scope.name == found.concurrency_key]
        obstacles = [limit_obstacle(use) for use in mine] or [
            Obstacle("key", "It waits for its concurrency.key, which nothing uses: it goes on in a moment.")
        ]
        if ahead:
            others = "1 other waits" if ahead == 1 else f"{ahead} others wait"
            waiting = f"{others} before it with the same concurrency.key."
            obstacles.append(Obstacle("queue", waiting, "Cancel those that are not needed, or wait."))
        return obstacles + [limit_obstacle(use) for use in full(uses) if use not in mine]

    async def _claimed(self, connection: Connection, found: Subject) -> dict[str, Any]:
        if found.agent is None:
            return await _flow(connection, found)
        claim = HeldClaim(
            instance_id=_instance(found),
            agent=found.agent,
            reserved_at=found.reserved_at,
            reserved_until=found.reserved_until,
            started_at=found.started_at,
            lease_until=found.lease_until,
            agent_last_seen_at=found.agent_last_seen_at,
            agent_reachable=found.agent_reachable,
            cancel_requested=bool(found.cancel_requested),
            progress=found.progress,
        )
        obstacles = _troubles(found)
        code = str(found.instance_status)
        return {"code": code, "summary": _where(found), "claim": claim, "obstacles": obstacles}

    async def _finished(self, connection: Connection, found: Subject, end: LastEnd | None) -> dict[str, Any]:
        retry = None if end is None else await self._decided(connection, found, end)
        because = f", reason {found.reason}" if found.reason else ""
        code = f" with exit code {end.shown.exit_code}" if end is not None and end.shown.exit_code else ""
        said = f" {end.shown.message}" if end is not None and end.shown.message else ""
        summary = f"It {_VERBS.get(found.status, found.status)}{code}{because}.{said}"
        return {"code": found.status, "summary": summary, "retry": retry}

    async def _decided(self, connection: Connection, found: Subject, end: LastEnd) -> RetryDecision | None:
        """Return what was decided about another attempt: asks what decided then, with what was known then."""
        shown = end.shown
        if found.reason == DEADLINE:
            return retry_decision(GiveUp(GiveUpReason.DEADLINE))
        if end.cancel_requested:
            return RetryDecision(retried=False, code="cancelled", message=_ENDED_BY_ORDER)
        version = await self._versions.get(connection, found.job_id, found.job_version, found.work)
        tail = await output_tail(connection, shown.instance_id, end.claim_no) if version.reads_output else ""
        outcome = InstanceOutcome(
            status=InstanceStatus(shown.status),
            exit_code=shown.exit_code,
            signal=shown.signal,
            output_tail=tail,
        )
        decision = decide(
            version.retry, outcome, attempts_spent=found.attempts, losses=found.losses, random=0.0
        )
        if isinstance(decision, Retry):
            return RetryDecision(retried=False, code="unknown", message=_FORGOTTEN)
        return retry_decision(decision)


_VERBS = {
    "succeeded": "succeeded",
    "failed": "failed",
    "cancelled": "was cancelled",
    "skipped": "was skipped",
}


def _stopped_by(obstacles: list[Obstacle]) -> dict[str, Any]:
    return {"code": obstacles[0].code, "summary": obstacles[0].message, "obstacles": obstacles}


def _claimable(agents: AgentsLooked) -> dict[str, Any]:
    named = [one.agent for one in agents.sample if one.code is None][:_MOST_NAMED]
    more = agents.able - len(named)
    who = ", ".join(named) + (f" or {more} others" if more else "")
    return {
        "code": "claimable",
        "summary": f"Nothing stands in the way: the next poll of {who} may take it.",
    }


async def _behind_schedule(connection: Connection, found: Subject) -> Obstacle:
    """Return what a fire waits for that its schedule holds back."""
    under_way = (
        await overlap_store.under_way(connection, [found.schedule_id])
        if found.schedule_id is not None
        else []
    )
    tasks = [one.task_id for one in under_way[:_MOST_UNDER_WAY]]
    of = f"the schedule {found.schedule} (overlap: {found.overlap})"
    if found.held_reason == HeldReason.QUEUE:
        before = await store.queued_before(connection, found)
        rest = f" and {before} that wait before it" if before else ""
        return Obstacle(
            "overlap",
            f"It waits for what {of} has under way{rest}.",
            "Cancel what is under way, or let fires overlap: overlap: allow.",
            tasks,
        )
    if found.due_at > found.now:
        return Obstacle(
            "not_due", f"It is due at {format_time(found.due_at)}; until then {of} holds it.", None, tasks
        )
    return Obstacle("overlap", f"It is being decided whether {of} lets it start.", None, tasks)


async def _flow(connection: Connection, found: Subject) -> dict[str, Any]:
    """Return what a flow that has begun waits for: it is run by no agent, its nodes are."""
    nodes = [_node(one) for one in await store.open_nodes(connection, found.id, _MOST_NODES)]
    waiting = [one for one in nodes if one.reason is not None]
    obstacles = [Obstacle(f"flow_{one.reason}", one.message) for one in waiting]
    names = ", ".join(one.node for one in nodes) or "none just now"
    summary = waiting[0].message if waiting else f"Its run goes on; nodes under way: {names}."
    return {"code": "flow", "summary": summary, "obstacles": obstacles, "nodes": nodes}


def _node(one: OpenNode) -> WaitingNode:
    until = f" until {format_time(one.wake_at)}" if one.wake_at else ""
    match one.reason:
        case "approval":
            message = f"The node {one.node} waits for an approval{until}."
        case "until":
            message = f"The node {one.node} waits for a time{until}."
        case "event":
            message = f"The node {one.node} waits for the event {one.event_name}{until}."
        case _:
            message = f"{one.ended} of {one.total} tasks of the node {one.node} have ended."
    known = one.reason if one.reason in {"approval", "until", "event"} else None
    return WaitingNode(one.node, known, message, one.wake_at, one.started, one.ended, one.total)


def _where(found: Subject) -> str:
    if found.instance_status == InstanceStatus.RESERVED:
        return f"The agent {found.agent} has it and is about to start it."
    since = found.started_at
    took = timedelta(0) if since is None else max(timedelta(0), found.now - since)
    seconds = timedelta(seconds=int(took.total_seconds()))
    return f"It runs on the agent {found.agent} since {format_duration(seconds)}."


def _troubles(found: Subject) -> list[Obstacle]:
    """Return what is unusual about something that an agent has."""
    troubles = []
    if found.cancel_requested:
        troubles.append(Obstacle("cancelling", "Its agent is told to end it."))
    if not found.agent_reachable:
        when = found.lease_until or found.reserved_until
        until = f", until {format_time(when)}" if when else ""
        troubles.append(
            Obstacle(
                "unreachable",
                f"Its agent was not heard of for too long; it keeps it for the rest of its lease{until}.",
                "Look at the agent's host, or give its work to others: hetuflow agent kick --lose-running.",
            )
        )
    return troubles


def _class(found: Subject) -> int:
    if found.placement_id is None:
        raise NotFound("There is no such task.", code="task.not_found")
    return found.placement_id


def _instance(found: Subject) -> UUID:
    if found.instance_id is None:
        raise NotFound("There is no such task.", code="task.not_found")
    return found.instance_id
