"""The work itself: what is scheduled at first, and what clients do all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from hetuflow_selftest.history import boottime
from hetuflow_selftest.settings import RunSettings
from hetuflow_selftest.workload.client import Client
from hetuflow_selftest.workload.documents import OVERLAPS, Document, Documents

_PER_JOB = 10


class Workload:
    def __init__(self, client: Client, documents: Documents, settings: RunSettings) -> None:
        self._client = client
        self._documents = documents
        self._settings = settings
        self._jobs: dict[str, str] = {}
        self._schedules: dict[str, list[str]] = {}
        self._newcomers = 0
        self._busy: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Schedule what fires from now on, and set clients to work."""
        ticking = self._settings.schedules - len(OVERLAPS)
        documents = [
            self._documents.ticking(f"tick-{first // _PER_JOB}", min(_PER_JOB, ticking - first), first)
            for first in range(0, ticking, _PER_JOB)
        ]
        documents += [self._documents.overlapping(policy) for policy in OVERLAPS]
        await self.apply(documents)
        self._busy = [asyncio.create_task(self._often(4.0, self.newcomer))]

    async def newcomer(self) -> None:
        """A job with schedules of its own: somebody has to generate its first fires right now."""
        self._newcomers += 1
        name = f"newcomer-{self._newcomers}"
        await self.apply([self._documents.ticking(name, 2)])

    async def apply(self, documents: list[Document]) -> None:
        called = boottime()
        status, _ = await self._client.ask("POST", "/apply", {"documents": documents})
        answered = boottime()
        if status != 200:  # noqa: PLR2004  OK
            return
        for document in documents:
            await self._learn(document, called, answered)

    async def _learn(self, document: Document, called: float, answered: float) -> None:
        """Find out which ids the schedules were given, and tell the judge what they promise."""
        name = document["name"]
        _, found = await self._client.ask("GET", "/schedules", job=name, limit=500)
        ids = {item["name"]: item["id"] for item in found["items"]}
        self._jobs[name] = found["items"][0]["job_id"] if found["items"] else ""
        self._schedules[name] = list(ids.values())
        for schedule in document.get("schedules", ()):
            spec = {key: schedule[key] for key in ("every", "cron") if key in schedule}
            if spec:
                self._client.note(
                    "schedule",
                    called,
                    answered,
                    job=name,
                    name=schedule["name"],
                    schedule=ids[schedule["name"]],
                    spec=spec,
                    overlap=schedule.get("overlap", "allow"),
                )

    async def end(self) -> None:
        """Nothing new begins: clients stop, then schedules."""
        for task in self._busy:
            task.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)
        await asyncio.gather(*(self._disable(name) for name in self._jobs))

    async def _disable(self, name: str) -> None:
        called = boottime()
        status, _ = await self._client.ask("POST", f"/jobs/{self._jobs[name]}/disable")
        answered = boottime() if status else None
        for schedule in self._schedules[name]:
            self._client.note("unschedule", called, answered, schedule=schedule, status=status)

    @staticmethod
    async def _often(seconds: float, deed: Callable[[], Awaitable[Any]]) -> None:
        while True:
            await asyncio.sleep(seconds)
            await deed()
