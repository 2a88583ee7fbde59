"""Parts that can only be made once others run: a server needs the address of the database just started."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from hetuflow_core.runtime.lifecycle import Part


class LateParts:
    """One part for the application, several inside; made when it is started, stopped in reverse."""

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
