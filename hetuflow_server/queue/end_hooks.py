"""End hooks: the actions of other subjects after tasks end, in the transaction that ends the tasks.

The finisher knows no subject by name. `hetuflow_server/app/end_hooks.py` registers the hooks, and the order
in which it does that is the lock order.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol
from uuid import UUID

import msgspec

from hetuflow_core.states import TaskStatus
from hetuflow_server.cluster.hints import Topic
from hetuflow_server.postgres.database import Connection
from hetuflow_server.queue.rows import Ended, EndedGroup, NewInstance


class TaskEnd(msgspec.Struct, frozen=True):
    """The end of a whole task. A Struct, because the fast path creates one for each row."""

    # The last instance of the task.
    instance: Ended
    status: TaskStatus
    # The fast path leaves these out: it ends no task of a flow run, and only flows read them.
    reason: str | None = None
    # JSON
    output: str | None = None
    flow_node: str | None = None


@dataclass(frozen=True, slots=True)
class TaskEnds:
    """Everything that one call of the finisher has ended."""

    # All instances that left the queue, including instances of tasks that are retried.
    instances: Sequence[Ended]
    # Tasks that are not retried.
    tasks: Sequence[TaskEnd]
    # The next attempts at the other tasks; not created yet.
    retries: Sequence[NewInstance] = ()
    # Successful ends that only affect limits, counted. They are in neither of the lists above.
    groups: Sequence[EndedGroup] = ()


class EndHook:
    """A hook that acts after tasks and instances are locked, ended and written.

    One object serves all transactions: state of a transaction is passed from `lock` to `follow`.
    """

    # Reasons for which this subject cancels tasks. A task that was cancelled for one of them keeps it.
    cancel_reasons: frozenset[str] = frozenset()

    @property
    def needs_each_end(self) -> bool:
        """Whether the hook has to see every end, so that the fast path must not count ends in groups."""
        return False

    async def lock(self, connection: Connection, ends: TaskEnds, /) -> Any:
        """Lock and update the rows of this subject; the result is passed to `follow`.

        Everything that may wait for another transaction belongs here, because hooks lock in one order.
        """

    async def follow(self, connection: Connection, ends: TaskEnds, locked: Any, /) -> set[Topic]:
        """Create the work that follows from the ends; return the wake-ups to send after the commit.

        All hooks have locked, so further rows are locked with SKIP LOCKED only. The exception is creating
        work with a concurrency key, which waits for other transactions that use the key.
        """
        raise NotImplementedError


class EarlyEndHook(Protocol):
    """A hook whose rows are locked before tasks, because tasks are parts of them."""

    async def lock(
        self, connection: Connection, *, instances: Sequence[UUID] = (), tasks: Sequence[UUID] = ()
    ) -> Any:
        """Lock the rows that these instances or tasks are parts of; the result is passed to `follow`.

        Cancelling and evicting call this too, without a later `follow`.
        """

    async def follow(self, connection: Connection, ends: TaskEnds, locked: Any, /) -> set[Topic]:
        """Do what `EndHook.follow` does; the fast path ends no part of such a row and does not call this."""
        ...

    async def cancel(self, connection: Connection, instances: Sequence[UUID]) -> set[Topic]:
        """Cancel running instances that no agent runs; return the wake-ups to send after the commit."""
        ...


EarlyLocks = Sequence[tuple[EarlyEndHook, Any]]


@dataclass(frozen=True, slots=True)
class EndHooks:
    """All hooks in lock order: `before_tasks`, then tasks and instances, then `after_tasks`.

    Hooks lock in this order and follow in the reverse order, like nested `with` blocks. Flow runs, for
    example, are locked before everything else and advanced after everything else.
    """

    before_tasks: Sequence[EarlyEndHook] = ()
    after_tasks: Sequence[EndHook] = ()

    @property
    def cancel_reasons(self) -> frozenset[str]:
        return frozenset().union(*(hook.cancel_reasons for hook in self.after_tasks))

    @property
    def need_each_end(self) -> bool:
        return any(hook.needs_each_end for hook in self.after_tasks)

    async def lock_before_tasks(
        self, connection: Connection, *, instances: Sequence[UUID] = (), tasks: Sequence[UUID] = ()
    ) -> EarlyLocks:
        return [
            (hook, await hook.lock(connection, instances=instances, tasks=tasks))
            for hook in self.before_tasks
        ]

    async def lock_and_follow(
        self, connection: Connection, ends: TaskEnds, early_locks: EarlyLocks = ()
    ) -> set[Topic]:
        """Run the hooks; return the wake-ups to send after the commit."""
        locks = [(hook, await hook.lock(connection, ends)) for hook in self.after_tasks]
        hints: set[Topic] = set()
        for hook, locked in reversed([*early_locks, *locks]):
            hints |= await hook.follow(connection, ends, locked)
        return hints

    async def cancel(self, connection: Connection, instances: Sequence[UUID]) -> set[Topic]:
        """Cancel running instances that no agent runs."""
        hints: set[Topic] = set()
        if instances:
            for hook in self.before_tasks:
                hints |= await hook.cancel(connection, instances)
        return hints
