"""Sealing: the leader chains entries of the audit trail once they are committed."""

from __future__ import annotations

from datetime import datetime

import structlog

from hetuflow_server.store import audit as store
from hetuflow_server.store.database import Transactions

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.audit")

_AT_ONCE = 200
# How often everything is looked through, and not only what is new.
_WHOLE_EVERY = 60


class AuditSealer:
    """A leader's duty. What it remembers only spares it work: a new leader begins by looking everywhere."""

    def __init__(self, transactions: Transactions) -> None:
        self._transactions = transactions
        self._since: datetime | None = None
        self._rounds = 0

    async def run_once(self) -> int:
        whole = self._rounds % _WHOLE_EVERY == 0
        async with self._transactions.transaction() as connection:
            count, last = await store.seal(connection, limit=_AT_ONCE, since=None if whole else self._since)
        if last is not None and (self._since is None or last > self._since):
            self._since = last
        if count < _AT_ONCE:
            # Only then there is nothing left behind in older partitions.
            self._rounds += 1
        return count
