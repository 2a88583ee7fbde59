"""Sealing: the leader chains entries of the audit trail once they are committed."""

from __future__ import annotations

from datetime import datetime

import structlog

from hetuflow_server.audit import store
from hetuflow_server.postgres.database import Database, Transactions

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.audit")

_AT_ONCE = 200
# How often everything is looked through, and not only what is new.
_WHOLE_EVERY = 60


class AuditSealer:
    """A leader's duty. What it remembers only spares it work: a new leader begins by looking everywhere."""

    def __init__(self, database: Database, transactions: Transactions) -> None:
        self._database = database
        # Of the leader: it proves that it is one.
        self._transactions = transactions
        self._since: datetime | None = None
        self._rounds = 0

    async def run_once(self) -> int:
        since = None if self._rounds % _WHOLE_EVERY == 0 else self._since
        # Most of the time there is nothing, and a look writes nothing.
        # By itself: upkeep locks partitions now and then, and no other look is to wait for that.
        async with self._database.reading() as connection:
            wanted = await store.any_unsealed(connection, since=since)
        if not wanted:
            self._rounds += 1
            return 0
        async with self._transactions.transaction() as connection:
            count, last = await store.seal(connection, limit=_AT_ONCE, since=since)
        if last is not None and (self._since is None or last > self._since):
            self._since = last
        if count < _AT_ONCE:
            # Only then there is nothing left behind in older partitions.
            self._rounds += 1
        return count
