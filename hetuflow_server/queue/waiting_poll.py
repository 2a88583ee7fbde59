"""Polls as the dispatcher sees them: who asks, for how much, and what it is dealt."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from uuid import UUID

from hetuflow_core.placement import AgentFacts, Resources, RunningJob
from hetuflow_server.queue.rows import Claimed, Recipient


@dataclass(frozen=True, slots=True)
class Assigned:
    claimed: list[Claimed]


NOTHING = Assigned([])


@dataclass(eq=False, slots=True)
class WaitingPoll:
    """A poll that waits for work."""

    facts: AgentFacts
    session_id: UUID
    request_id: UUID
    served: frozenset[int]
    free: int
    slots: int
    prefetch: timedelta
    # What its agent is called.
    name: str | None = None
    # What is left of the agent's resources, as it says itself; all of them if it does not.
    free_resources: Resources = field(default_factory=Resources)
    # What it has under way, by namespace, as it says itself.
    running: Mapping[int, Sequence[RunningJob]] = field(default_factory=dict)
    # Whether this very request may have been given something before, by an answer that was lost.
    repeated: bool = True
    # Whether it may be dealt rows: not before it was looked at whether it was given some before.
    eligible: bool = False
    # Sent home before its time, because there may be something else to tell.
    dismissed: bool = False
    answer: asyncio.Future[Assigned] = field(
        default_factory=lambda: asyncio.get_running_loop().create_future()
    )
    # No round has looked for it yet: what it may have been given before is to be looked for.
    new: bool = True
    # It goes, with what its first round finds.
    going: bool = False
    recipient: Recipient = field(init=False)

    def __post_init__(self) -> None:
        self.recipient = Recipient(self.facts.agent_id, self.session_id, self.request_id)

    @property
    def agent_id(self) -> UUID:
        return self.facts.agent_id

    @property
    def load(self) -> float:
        return max(0.0, 1 - self.free / self.slots)

    def settle(self, assigned: Assigned) -> None:
        if not self.answer.done():
            self.answer.set_result(assigned)

    def dismiss(self) -> None:
        """Send it home before its time."""
        self.dismissed = True
        self.go()

    def go(self) -> None:
        """Go without work, after the first look at the earliest."""
        if self.new:
            self.going = True
        else:
            self.settle(NOTHING)

    def fail(self, error: Exception) -> None:
        if not self.answer.done():
            self.answer.set_exception(error)

    def note_look(self) -> None:
        """A round has looked for it, and told it what it found."""
        self.new = False
        if self.going:
            self.settle(NOTHING)
