"""What every bulk action shares: how much is done at once, what comes of it, and that it is meant."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from hetuflow_core.errors import Conflict, Denied, Invalid, NotFound
from hetuflow_core.resources.bulk import BulkFailure, BulkItem, BulkResult
from hetuflow_server.postgres.faults import deadlocked
from hetuflow_server.requests.context import RequestContext

# In one transaction.
BATCH: Final = 200
# In one call; whoever wants more goes on from where it ended.
MOST_CHANGED: Final = 1_000
SAMPLE: Final = 10
# Errors that say something about one thing, and nothing about the next.
_OF_ONE: Final = (Conflict, Denied, Invalid, NotFound)


@dataclass(slots=True)
class Tally:
    """What came of a call so far."""

    matched: int = 0
    changed: int = 0
    failed: list[BulkFailure] = field(default_factory=list)

    def result(self) -> BulkResult:
        unchanged = self.matched - self.changed - len(self.failed)
        return BulkResult(
            dry_run=False,
            matched=self.matched,
            changed=self.changed,
            unchanged=unchanged,
            failed=self.failed,
            sample=[],
            next_cursor=None,
            cut=False,
        )


def dry_run(sample: Sequence[BulkItem], matched: int, *, cut: bool) -> BulkResult:
    return BulkResult(
        dry_run=True,
        matched=matched,
        changed=0,
        unchanged=0,
        failed=[],
        sample=list(sample[:SAMPLE]),
        next_cursor=None,
        cut=cut,
    )


def most_at_once(context: RequestContext) -> int:
    """With an idempotency key all of a call is one transaction, which must stay small."""
    return MOST_CHANGED if context.enclosing is None else BATCH


def refuse_unless_meant(*, empty: bool, everything: bool) -> None:
    """A filter that was forgotten must not mean everything."""
    if empty and not everything:
        raise Invalid(
            "This would concern everything: give a filter, or `all: true` if that is meant.",
            code="bulk.filter_empty",
        )


async def in_batches(
    tally: Tally, ids: Sequence[UUID], act: Callable[[Sequence[UUID]], Awaitable[int]]
) -> None:
    """Do it to all of them, batch by batch; whoever met others in a ring is tried again in halves."""
    waiting = [ids[first : first + BATCH] for first in range(0, len(ids), BATCH)]
    while waiting:
        batch = waiting.pop(0)
        try:
            tally.changed += await act(batch)
        except Exception as error:
            if deadlocked(error) and len(batch) > 1:
                half = len(batch) // 2
                waiting[:0] = [batch[:half], batch[half:]]
            elif not isinstance(error, _OF_ONE):
                raise
            elif len(batch) > 1:
                waiting[:0] = [[one] for one in batch]
            else:
                tally.failed.append(BulkFailure(batch[0], error.code, error.message))
