"""Where the parts of the scene are, and how two of them are kept from hearing each other.

Either everything is on the loopback address, and every line goes through a proxy that can hold it; or each
part is a host of its own, and packets between two of them get lost.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from typing import Final, Protocol

from hetuflow_selftest.scene.lines import Lines
from hetuflow_selftest.scene.namespaces import Namespaces, NoNamespaces
from hetuflow_selftest.scene.processes import SceneBroken

POSTGRES: Final = "postgres"
# Agents reach servers through it; what they say to each other is overheard there.
BALANCER: Final = "balancer"
AUTO: Final = "auto"
NAMESPACES: Final = "namespaces"
PROXIES: Final = "proxies"
NETWORKS: Final = (AUTO, NAMESPACES, PROXIES)


class Network(Protocol):
    name: str
    # Whether servers speak to PostgreSQL without anybody in between.
    direct: bool

    def add(self, name: str) -> str:
        """Give this part a place; return its address."""

    def entrance(self, name: str) -> Callable[[], None] | None:
        """Return what a child calls to be in its place."""

    def inside(self, name: str) -> AbstractContextManager[None]:
        """Be in this place as long as nothing is awaited."""

    async def cut(self, one: str, other: str, direction: str = "both") -> None:
        """Keep from `other` what `one` says (`there`), from `one` what `other` says (`back`), or `both`."""

    async def mend(self, one: str, other: str) -> int:
        """Let everything pass; return how often the cut was felt."""

    def close(self) -> None: ...


class Loopback:
    """One host for all: bytes of a line that is cut are held, and delivered when it is mended."""

    name = PROXIES
    direct = False

    def __init__(self, lines: Lines) -> None:
        self._lines = lines
        self._places: list[str] = []

    def add(self, name: str) -> str:
        self._places.append(name)
        return "127.0.0.1"

    def entrance(self, _: str) -> None:
        return None

    def inside(self, _: str) -> AbstractContextManager[None]:
        return nullcontext()

    async def cut(self, one: str, other: str, direction: str = "both") -> None:
        target = self._target(one, other)
        for link in self._links(one, other):
            await self._lines.suffer(link, "hold", direction=direction, target=target)

    async def mend(self, one: str, other: str) -> int:
        return sum([await self._lines.heal(link) for link in self._links(one, other)])

    def close(self) -> None:
        """There is nothing to take down."""

    def _links(self, one: str, other: str) -> Sequence[str]:
        """Return its own line; a server that is cut from agents has a part of each of theirs."""
        if self._target(one, other) is None:
            return [one]
        return [place for place in self._places if place.startswith("agent-")]

    @staticmethod
    def _target(one: str, other: str) -> int | None:
        if one.startswith("server-") and other == BALANCER:
            return int(one.rpartition("-")[2]) - 1
        return None


class Hosts:
    """A host for each: packets between two that are cut from each other vanish without a word."""

    name = NAMESPACES
    direct = True

    def __init__(self, namespaces: Namespaces) -> None:
        self._namespaces = namespaces
        self.add = namespaces.add
        self.entrance = namespaces.entrance
        self.inside = namespaces.inside
        self.close = namespaces.close

    async def cut(self, one: str, other: str, direction: str = "both") -> None:
        self._namespaces.cut(one, other, direction)

    async def mend(self, one: str, other: str) -> int:
        return self._namespaces.mend(one, other)


def build_network(wanted: str, lines: Lines, tell: Callable[[str], None]) -> Network:
    """Build what is wanted, if this machine can have it."""
    if wanted == PROXIES:
        return Loopback(lines)
    try:
        return Hosts(Namespaces.open())
    except NoNamespaces as reason:
        if wanted == NAMESPACES:
            raise SceneBroken(f"There are no network namespaces here: {reason}.") from reason
        tell(f"no network namespaces here ({reason}): lines go through proxies instead")
        return Loopback(lines)
