"""Partitions of the audit trail: entries expire by whole days, and the chain can still be followed."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime

from hetuflow_server.audit import store
from hetuflow_server.postgres.connection import Connection
from hetuflow_server.postgres.partitions import Partitioned, Partitions

AUDIT = Partitioned("sched_audit", key="id", keep="at > %(cutoff)s OR seq IS NULL", settled="seq IS NOT NULL")


class AuditPartitions(Partitions):
    @asynccontextmanager
    async def _step(self) -> AsyncIterator[Connection]:
        """Entries may be moved from the default partition to their own, and by nobody else."""
        async with super()._step() as connection:
            await connection.execute("SET LOCAL hetuflow.files_audit = 'on'")
            yield connection

    async def _before_drop(self, connection: Connection, partition: str) -> bool:
        return await store.expire(connection, partition)

    async def _thin(self, partition: str, cutoff: datetime) -> int:  # noqa: ARG002 - the same for all tables
        """Only whole days go."""
        return 0
