"""Loops by role: the leader's, the owners', and those of every server; one shape for each."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, Final

import structlog

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_core.runtime.loop import Loop
from hetuflow_core.runtime.timers import Timers
from hetuflow_server.cluster.leadership import Leadership, NotLeading
from hetuflow_server.cluster.ownership import NotOwner, Ownership

Look = Callable[[Sequence[int]], Awaitable[Sequence[int]]]

# Loops that pause for as long wake together, the earliest of them decides when: the less it differs from the
# others the better. Servers are spread by when they were started.
_JITTER: Final = 0.02

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.roles")


class RoleLoops:
    """Makes loops that are idle while this server has not the role, and begin at once when it gets it."""

    def __init__(
        self, leadership: Leadership, ownership: Ownership, *, timers: Timers, rng: random.Random
    ) -> None:
        self._leadership = leadership
        self._ownership = ownership
        self._timers = timers
        self._rng = rng
        # What this server hands over before it goes.
        self.duties: list[Loop] = []

    def server_loop(
        self, name: str, duty: Callable[[], Awaitable[int]], *, every: float, **options: Any
    ) -> Loop:
        """Every server does it."""
        return Loop(
            name, duty, timers=self._timers, rng=self._rng, every=every, **{"jitter": _JITTER, **options}
        )

    def leader_loop(
        self, name: str, duty: Callable[[], Awaitable[int]], *, every: float, **options: Any
    ) -> Loop:
        """The leader does it, in `leadership.fenced()` transactions."""

        async def run_once() -> int:
            return await while_leading(self._leadership, duty)

        loop = self.server_loop(name, run_once, every=every, **options)
        self.duties.append(loop)
        self._leadership.when_won(loop.wake)
        return loop

    def owner_loop(
        self,
        name: str,
        duty: Callable[[int], Awaitable[int]],
        *,
        every: float,
        look: Look | None = None,
        **options: Any,
    ) -> Loop:
        """The owner of each namespace does it for that namespace, in `ownership.transaction()`s.

        `look` says which of many namespaces have something to do, so that the idle ones cost nothing.
        """

        async def run_once() -> int:
            return await for_each_owned(self._ownership, duty, look)

        loop = self.server_loop(name, run_once, every=every, **options)
        self.duties.append(loop)
        self._ownership.when_gained(loop.wake)
        return loop


async def while_leading(leadership: Leadership, duty: Callable[[], Awaitable[int]]) -> int:
    if leadership.term is None:
        return 0
    try:
        return await duty()
    except NotLeading:
        return 0


async def for_each_owned(
    ownership: Ownership, duty: Callable[[int], Awaitable[int]], look: Look | None = None
) -> int:
    """Do `duty` for every owned namespace; one that fails keeps none of the others from theirs."""
    owned = sorted(ownership.owned)
    try:
        wanted = await look(owned) if look is not None and owned else owned
    except NotOwner:
        return 0
    done, failure = 0, None
    for namespace_id in wanted:
        try:
            done += await duty(namespace_id)
        except NotOwner:
            continue
        except DatabaseUnreachable:
            raise  # the others would only wait for it too
        except Exception as error:  # noqa: BLE001  raised below, when all others have had their turn
            if failure is not None:
                log.warning(
                    "A duty failed for another namespace too.", namespace_id=namespace_id, error=str(error)
                )
            failure = failure or error
    if failure is not None:
        raise failure
    return done
