"""A server with a bug on purpose: `python broken_server.py BUG server`.

The bug is put in before anything is started, by replacing a function or a statement. What is installed has no
switch for this.
"""

from __future__ import annotations

import asyncio
import socket
import sys
from collections.abc import Callable
from contextlib import suppress
from types import SimpleNamespace
from typing import Any, Final
from uuid import NAMESPACE_DNS, uuid5

from hetuflow_core.errors import DatabaseUnreachable
from hetuflow_server.app import cluster
from hetuflow_server.cli.main import main
from hetuflow_server.cluster import leadership_store
from hetuflow_server.cluster.leadership import Leadership
from hetuflow_server.queue import store as queue_store, transitions

# Between the decision to write and the writing: without any, luck decides whether harm is done.
_A_WHILE = 1.0
_NOT_YET = "clock_timestamp() + interval '4 s'"


def unfenced() -> None:
    """A leader that knows it leads, and that is enough for it, however long it takes to write then."""

    async def take_time_instead(*_: Any) -> bool:
        await asyncio.sleep(_A_WHILE)
        return True

    replace(leadership_store, "fence", take_time_instead)


def leader_kept() -> None:
    """A leader that goes on when its lease cannot be renewed, and so long as nobody stops it."""
    renew = leadership_store.Lease.renew

    def renew_or_not(self: leadership_store.Lease, epoch: int) -> bool:
        with suppress(DatabaseUnreachable):
            renew(self, epoch)
        return True

    unfenced()
    replace(leadership_store.Lease, "renew", renew_or_not)
    replace(Leadership, "term", property(lambda self: self._standing and self._standing.term))


def rescue_by_id() -> None:
    """A rescuer whose list was made by somebody else, and whose statement does not ask again."""
    replace(
        queue_store,
        "_EXPIRED",
        queue_store._EXPIRED.replace("lease_until < clock_timestamp()", f"lease_until < {_NOT_YET}"),
    )
    needed = "ELSE i.reserved_until END < clock_timestamp()"
    assert needed in queue_store._LOOK_FOR_RESCUE
    replace(
        queue_store,
        "_LOOK_FOR_RESCUE",
        queue_store._LOOK_FOR_RESCUE.replace(needed, f"ELSE i.reserved_until END < {_NOT_YET}"),
    )
    replace(transitions, "_END_LOST", transitions._END.format(guard="i.status = 'running'"))


def hostname_identity() -> None:
    """Servers that go by the name of their host: two on one host, or two lives of one, are the same."""
    name = uuid5(NAMESPACE_DNS, socket.gethostname())
    replace(cluster, "ids", SimpleNamespace(new_id=lambda *_: name))


def replace(owner: Any, name: str, value: Any) -> None:
    """Refuse to replace what is not there: a bug that is not in proves nothing."""
    assert getattr(owner, name) != value, f"{name} is what it was"
    setattr(owner, name, value)


BUGS: Final[dict[str, Callable[[], None]]] = {
    "unfenced": unfenced,
    "leader-kept": leader_kept,
    "rescue-by-id": rescue_by_id,
    "hostname-identity": hostname_identity,
}

if __name__ == "__main__":
    BUGS[sys.argv.pop(1)]()
    main()
