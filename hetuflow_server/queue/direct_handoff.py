"""Offers: work that is about to be made, and somebody who waits for just that.

Made and reserved in one transaction, it is where it runs one round of the dispatcher earlier, and a task that
comes alone costs one transaction less. Whoever the offer is for is out of the waiting room meanwhile: nobody
else deals to it.
"""

from __future__ import annotations

from types import TracebackType
from typing import Protocol, Self

import structlog

from hetuflow_server.queue.rows import Claimable, Claimed, NewInstance, Recipient
from hetuflow_server.queue.waiting_poll import Assigned, WaitingPoll

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.dispatcher")


class HandoffTarget(Protocol):
    """Where those wait whom offers are made to."""

    def note_given(self, namespace_id: int) -> None: ...

    def wait_on(self, waiting_poll: WaitingPoll) -> None: ...

    async def take_back(self, assigned: Assigned) -> None: ...


class DirectHandoff:
    """Ends with its block: what was `made` goes to whoever it is for; if nothing was, that waits on."""

    def __init__(self, waiting_poll: WaitingPoll, desk: HandoffTarget) -> None:
        self._waiting_poll = waiting_poll
        self._target = desk
        self.made: Claimed | None = None
        # Whether what was made is still whose it was made as.
        self.kept = False

    @property
    def agent(self) -> str | None:
        """What the agent it is for is called."""
        return self._waiting_poll.name

    @property
    def recipient(self) -> Recipient:
        return self._waiting_poll.recipient

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        waiting_poll = self._waiting_poll
        if self.made is None:
            if not waiting_poll.answer.done():
                # What failed may have been committed for it all the same.
                waiting_poll.repeated = True
                self._target.wait_on(waiting_poll)
            return
        self._target.note_given(self.made.namespace_id)
        if waiting_poll.answer.done():
            await self._return(Assigned([self.made]))
        else:
            waiting_poll.settle(Assigned([self.made]))
            self.kept = True

    async def _return(self, assigned: Assigned) -> None:
        """It has gone meanwhile, which is nothing that whoever made the work should hear of."""
        try:
            await self._target.take_back(assigned)
        except Exception as error:  # noqa: BLE001 - the reservation runs out by itself
            log.warning("New work stays reserved for somebody who has gone.", error=str(error))


def nobody_waits(new: NewInstance) -> DirectHandoff | None:  # noqa: ARG001 - whatever it is
    """What a process without a dispatcher has to offer."""
    return None


def claimable(new: NewInstance) -> Claimable | None:
    """Return new work as a claim would find it; None if no agent may take it yet."""
    if new.held_reason is not None or new.lease_ms is None:
        return None
    return Claimable(
        new.id,
        new.task_id,
        new.namespace_id,
        new.placement_id,
        new.priority,
        new.due_at,
        new.concurrency_key,
        new.target_agent_id,
        new.job_id,
        new.job_version,
        new.attempt,
        new.fire_at,
        new.lease_ms,
        new.slot,
    )
