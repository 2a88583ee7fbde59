"""Whether this server should get requests: database reachable, schema usable, loops alive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from hetuflow_core.errors import HetuflowError
from hetuflow_core.runtime.loop import Loop
from hetuflow_server.cluster.leadership import Leadership
from hetuflow_server.postgres.database import Database

_PATIENCE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    detail: str


class Readiness:
    def __init__(self, database: Database, loops: Sequence[Loop], leadership: Leadership) -> None:
        self._database = database
        self._loops = loops
        self._leadership = leadership

    async def checks(self) -> list[Check]:
        return [await self._database_check(), self._leadership_check(), *map(_loop_check, self._loops)]

    async def _database_check(self) -> Check:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                state = await self._database.check()
        except HetuflowError as error:
            return Check("database", ok=False, detail=error.message)
        except TimeoutError:
            return Check("database", ok=False, detail="The database did not answer in time.")
        return Check("database", ok=True, detail=f"schema {state.revision}")

    def _leadership_check(self) -> Check:
        """Leading is not asked for, only being able to: a server that cannot would leave nobody to lead."""
        term = self._leadership.term
        detail = f"leads in term {term.epoch}" if term else "does not lead"
        return Check("leadership", ok=self._leadership.alive(), detail=detail)


def _loop_check(loop: Loop) -> Check:
    stats = loop.stats()
    detail = f"{stats.runs} runs, {stats.failures} failures"
    return Check(f"loop {loop.name}", ok=loop.alive(), detail=detail)
