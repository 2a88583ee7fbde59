"""The work itself: what is scheduled at first, and what clients do all the time."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any
from uuid import uuid4

import httpx

from hetuflow_selftest.history import boottime
from hetuflow_selftest.settings import RunSettings
from hetuflow_selftest.workload.client import Client
from hetuflow_selftest.workload.documents import ENDLESS, EVENT, FLOW, ON_EVENT, STEADY, Document, Documents

# So many of them fire at any time: they come and go, faults or not.
_NEWCOMERS = 2


class Workload:
    def __init__(self, client: Client, documents: Documents, settings: RunSettings) -> None:
        self._client = client
        self._documents = documents
        self._settings = settings
        self._jobs: dict[str, str] = {}
        self._schedules: dict[str, list[str]] = {}
        self._newcomers = 0
        self._ending = asyncio.Event()
        self._busy: list[asyncio.Task[None]] = []

    async def begin(self) -> None:
        """Schedule what fires from now on, and set clients to work."""
        await self.apply(self._documents.at_first())
        pace = self._settings.pace / self._settings.rate
        self._busy = [
            asyncio.create_task(self._often(seconds * pace, deed))
            for seconds, deed in (
                (4.0, self.newcomer),
                (1.0, self._run_steady),
                (1.5, self._emit),
                (3.0, self._run_flow),
                (3.0, self._run_and_cancel),
            )
        ]

    async def newcomer(self) -> None:
        """A job with schedules of its own: somebody has to generate its first fires right now."""
        if not self._ending.is_set():
            self._newcomers += 1
            await self.apply([self._documents.ticking(_newcomer(self._newcomers), 2)])
            former = _newcomer(self._newcomers - _NEWCOMERS)
            if former in self._jobs:
                await self._disable(former)

    async def apply(self, documents: list[Document]) -> None:
        called = boottime()
        status, _ = await self._client.ask("POST", "/apply", {"documents": documents})
        answered = boottime()
        if httpx.codes.is_success(status):
            for document in documents:
                await self._learn(document, called, answered)

    async def end(self) -> None:
        """Nothing new begins: clients finish what they are at and stop, then schedules."""
        self._ending.set()
        await asyncio.gather(*self._busy)
        # An event is matched after it was acknowledged, and then wants somebody who is enabled: what answers
        # events goes on, as no more of them come.
        await asyncio.gather(*(self._disable(name) for name in list(self._jobs) if name != ON_EVENT))

    async def abandon(self) -> None:
        """End what clients are at, if they are at anything still."""
        for deed in self._busy:
            deed.cancel()
        await asyncio.gather(*self._busy, return_exceptions=True)

    async def _learn(self, document: Document, called: float, answered: float) -> None:
        """Find out which ids things were given, and tell the judge what the schedules promise."""
        name = document["name"]
        _, jobs = await self._client.ask("GET", "/jobs", name=name)
        self._jobs[name] = next(item["id"] for item in jobs["items"] if item["name"] == name)
        _, found = await self._client.ask("GET", "/schedules", job=name, limit=500)
        ids = {item["name"]: item["id"] for item in found["items"]}
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

    async def _disable(self, name: str) -> None:
        job, called = self._jobs.pop(name), boottime()
        status, _ = await self._client.ask("POST", f"/jobs/{job}/disable")
        answered = boottime() if status else None
        for schedule in self._schedules[name]:
            self._client.note("unschedule", called, answered, schedule=schedule, status=status)

    async def _run(self, job: str) -> str | None:
        """Ask for a task once, however often that has to be said; return its id."""
        body = {"idempotency_key": str(uuid4())}
        answer = await self._client.do("run", "POST", f"/jobs/{self._jobs[job]}/run", body, job=job)
        return answer["id"] if answer else None

    async def _run_steady(self) -> None:
        await self._run(STEADY)

    async def _run_flow(self) -> None:
        await self._run(FLOW)

    async def _run_and_cancel(self) -> None:
        task = await self._run(ENDLESS)
        if task is not None:
            await asyncio.sleep(1.0)
            await self._client.do("cancel", "POST", f"/tasks/{task}/cancel", task=task)

    async def _emit(self) -> None:
        key = str(uuid4())
        body = {"namespace": "default", "name": EVENT, "payload": {"key": key}, "key": key}
        await self._client.do("emit", "POST", "/events", body, key=key)

    async def _often(self, seconds: float, deed: Callable[[], Awaitable[Any]]) -> None:
        while not self._ending.is_set():
            await deed()
            try:
                await asyncio.wait_for(self._ending.wait(), seconds)
            except TimeoutError:
                continue


def _newcomer(number: int) -> str:
    return f"newcomer-{number}"
