"""One line between two parts, and what may go wrong with it."""

from __future__ import annotations

import asyncio
import socket
from collections import Counter
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from http import HTTPStatus

from hetuflow_selftest.history import History
from hetuflow_selftest.proxy.overhearing import Overheard

_CHUNK = 65_536
_CONNECT_SECONDS = 5.0

Address = tuple[str, int]


@dataclass(frozen=True, slots=True)
class LinkFault:
    # `refuse`: connections end, new ones too. `hold`: bytes wait and are delivered when it is over, as those
    # of a network that was cut. `swallow`: requests arrive and answers do not.
    kind: str
    # `there`, `back` or `both`, of what is held.
    direction: str = "both"
    # Only on the way to this target; None: to all of them.
    target: int | None = None
    # Only answers to these paths are swallowed.
    paths: tuple[str, ...] = ()
    # How many answers of each path are swallowed; as many again of those that say yes to an end.
    most: int = 1_000_000


class Link:
    """Connections to one port, each passed on to the first of the targets, in turn, that accepts it."""

    def __init__(self, name: str, targets: Sequence[Address], history: History, *, http: bool) -> None:
        self.name = name
        self._targets = targets
        self._history = history
        self._http = http
        self._fault: LinkFault | None = None
        self._healed = asyncio.Event()
        self._healed.set()
        self._felt = 0
        self._swallowed: Counter[tuple[str, bool]] = Counter()
        self._turn = 0
        self._open: set[Conversation] = set()

    async def open(self, address: str) -> int:
        server = await asyncio.start_server(self._accept, address, 0)
        self._server = server
        return int(server.sockets[0].getsockname()[1])

    def suffer(self, fault: LinkFault) -> None:
        self._fault, self._felt = fault, 0
        self._swallowed.clear()
        self._history.write("link", link=self.name, fault=fault.kind, direction=fault.direction)
        if fault.kind == "hold":
            self._healed.clear()
        if fault.kind == "refuse":
            for one in list(self._open):
                if self._meant(one.target):
                    self._felt += 1
                    one.end()

    def heal(self) -> int:
        """Let everything pass again; return how often the fault was felt."""
        self._fault = None
        self._healed.set()
        self._history.write("link", link=self.name, fault=None, felt=self._felt)
        return self._felt

    def shed(self) -> None:
        """End connections that carry nothing: the next request takes another one, to the next target."""
        for one in list(self._open):
            if one.idle:
                one.end()

    async def passing(self, direction: str, target: int) -> None:
        """Wait while this direction is held."""
        fault = self._fault
        if fault and fault.kind == "hold" and fault.direction in {direction, "both"} and self._meant(target):
            self._felt += 1
            await self._healed.wait()

    def swallows(self, ear: Overheard, target: int, status: int) -> bool:
        """Whether this answer gets lost; a refusal is not worth it."""
        fault = self._fault
        if fault is None or fault.kind != "swallow" or not self._meant(target):
            return False
        kind = ear.path, ear.tells_of_an_end
        if (
            status != HTTPStatus.OK
            or not ear.path.endswith(fault.paths)
            or self._swallowed[kind] >= fault.most
        ):
            return False
        self._swallowed[kind] += 1
        self._felt += 1
        return True

    def _meant(self, target: int) -> bool:
        return self._fault is not None and self._fault.target in {None, target}

    async def _accept(self, near_in: asyncio.StreamReader, near_out: asyncio.StreamWriter) -> None:
        found = await self._reach()
        if found is None:
            near_out.close()
            return
        target, far_in, far_out = found
        ear = Overheard(self._history, self.name, target) if self._http else None
        conversation = Conversation(self, target, near_out, far_out, ear)
        self._open.add(conversation)
        try:
            await asyncio.gather(conversation.there(near_in), conversation.back(far_in))
        finally:
            self._open.discard(conversation)
            conversation.end()

    async def _reach(self) -> tuple[int, asyncio.StreamReader, asyncio.StreamWriter] | None:
        self._turn += 1
        for step in range(len(self._targets)):
            target = (self._turn + step) % len(self._targets)
            if self._fault is not None and self._fault.kind == "refuse" and self._meant(target):
                self._felt += 1
                continue
            with suppress(OSError, TimeoutError):
                async with asyncio.timeout(_CONNECT_SECONDS):
                    reader, writer = await asyncio.open_connection(*self._targets[target])
                _without_delay(writer)
                return target, reader, writer
        return None


class Conversation:
    """One connection and the one it is passed on to; they end together."""

    def __init__(
        self,
        link: Link,
        target: int,
        near: asyncio.StreamWriter,
        far: asyncio.StreamWriter,
        ear: Overheard | None,
    ) -> None:
        self._link = link
        self.target = target
        self._near = near
        self._far = far
        self._ear = ear
        _without_delay(near)

    @property
    def idle(self) -> bool:
        return self._ear is not None and self._ear.between

    def end(self) -> None:
        for writer in (self._near, self._far):
            writer.transport.abort()

    async def there(self, source: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await source.read(_CHUNK):
                await self._link.passing("there", self.target)
                if self._ear:
                    self._ear.there(data)
                self._far.write(data)
                await self._far.drain()
        self.end()

    async def back(self, source: asyncio.StreamReader) -> None:
        with suppress(OSError):
            while data := await source.read(_CHUNK):
                await self._link.passing("back", self.target)
                if self._ear and (status := self._ear.back(data)) is not None:
                    # Its beginning may have passed: nobody takes half an answer for one.
                    swallowed = self._link.swallows(self._ear, self.target, status)
                    self._ear.note(status, passed=not swallowed)
                    if swallowed:
                        break
                self._near.write(data)
                await self._near.drain()
        self.end()


def _without_delay(writer: asyncio.StreamWriter) -> None:
    writer.get_extra_info("socket").setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
