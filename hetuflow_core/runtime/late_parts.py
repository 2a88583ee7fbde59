"""Parts that are created after others have started: a server needs the address of the embedded database."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hetuflow_core.runtime.lifecycle import Part


class LateParts:
    """A part that contains others: creates and starts them at its start, stops them in reverse order."""

    def __init__(self, name: str, make: Callable[[], Sequence[Part]]) -> None:
        self.name = name
        self._make = make
        self._started: list[Part] = []

    async def start(self) -> None:
        try:
            for part in self._make():
                await part.start()
                self._started.append(part)
        except BaseException:
            await self.stop()
            raise

    async def stop(self) -> None:
        while self._started:
            await self._started.pop().stop()
