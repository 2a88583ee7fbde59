"""Whether this server should get requests: database reachable, schema usable, loops alive."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

from hetuflow_core.errors import HetuflowError
from hetuflow_core.runtime.loop import Loop
from hetuflow_server.store.database import Database

_PATIENCE_SECONDS = 3.0


@dataclass(frozen=True, slots=True)
class Check:
    name: str
    ok: bool
    detail: str


class Readiness:
    def __init__(self, database: Database, loops: Sequence[Loop]) -> None:
        self._database = database
        self._loops = loops

    async def checks(self) -> list[Check]:
        return [await self._database_check(), *map(_loop_check, self._loops)]

    async def _database_check(self) -> Check:
        try:
            async with asyncio.timeout(_PATIENCE_SECONDS):
                state = await self._database.check()
        except HetuflowError as error:
            return Check("database", ok=False, detail=error.message)
        except TimeoutError:
            return Check("database", ok=False, detail="The database did not answer in time.")
        return Check("database", ok=True, detail=f"schema {state.revision}")


def _loop_check(loop: Loop) -> Check:
    stats = loop.stats()
    detail = f"{stats.runs} runs, {stats.failures} failures"
    return Check(f"loop {loop.name}", ok=loop.alive(), detail=detail)
