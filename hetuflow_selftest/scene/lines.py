"""The proxy process, as whoever makes faults speaks to it."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

Address = tuple[str, int]


class Lines:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.address = ""
        self._process: asyncio.subprocess.Process | None = None
        self._turn = asyncio.Lock()

    async def start(self, address: str, entrance: Callable[[], None] | None) -> None:
        """Start it at this address; `entrance` takes it to where that is."""
        self.address = address
        with (self._folder / "proxy.log").open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable,
                "-m",
                "hetuflow_selftest.proxy",
                str(self._folder),
                address,
                stdin=asyncio.subprocess.PIPE,
                stdout=asyncio.subprocess.PIPE,
                stderr=log,
                start_new_session=True,
                preexec_fn=entrance,
            )

    async def open(self, link: str, targets: Sequence[Address], *, http: bool) -> int:
        """Return the port of a new link."""
        answer = await self._order(do="open", link=link, targets=list(targets), http=http)
        return int(answer["port"])

    async def suffer(self, link: str, kind: str, **facts: Any) -> None:
        await self._order(do="fault", link=link, fault={"kind": kind, **facts})

    async def heal(self, link: str) -> int:
        """Return how often the fault was felt."""
        return int((await self._order(do="heal", link=link))["felt"])

    async def shed(self, link: str) -> None:
        """Let go of connections that carry nothing, as balancers do: new ones go to the servers in turn."""
        await self._order(do="shed", link=link)

    async def stop(self) -> None:
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()
            try:
                await asyncio.wait_for(self._process.wait(), 10)
            except TimeoutError:
                self._process.kill()
                await self._process.wait()

    async def _order(self, **order: Any) -> dict[str, Any]:
        process = self._process
        if process is None or process.stdin is None or process.stdout is None:
            raise RuntimeError("the proxy is not started")
        async with self._turn:
            process.stdin.write(json.dumps(order).encode() + b"\n")
            await process.stdin.drain()
            answer: dict[str, Any] = json.loads(await process.stdout.readline())
            return answer
