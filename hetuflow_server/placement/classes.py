"""Placement classes as this server knows them; they never change, so each is read once."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from hetuflow_core.placement import AntiAffinity, Requirements, Resources, adjusted, requirements_from
from hetuflow_core.retry import RetryChange
from hetuflow_server.placement import store as placement_store
from hetuflow_server.postgres.database import Connection

_NOTHING = Resources()
_NEVER_MIND = AntiAffinity()


@dataclass(frozen=True, slots=True)
class PlacementClass:
    requirements: Requirements
    # Names of limits, in the namespace of whatever is of this class.
    scopes: tuple[str, ...] = ()

    @property
    def resources(self) -> Resources:
        return self.requirements.resources

    @property
    def fits_beside_anything(self) -> bool:
        """Whether it takes nothing of an agent's stock and does not mind what else is there."""
        return self.requirements.resources == _NOTHING and self.requirements.anti_affinity == _NEVER_MIND


class PlacementClasses:
    def __init__(self) -> None:
        self._known: dict[int, PlacementClass] = {}

    async def learn(self, connection: Connection, ids: Iterable[int]) -> None:
        """Read the classes that were not met before."""
        unknown = sorted({one for one in ids if one not in self._known})
        if unknown:
            found = await placement_store.classes(connection, unknown)
            for id_, (document, scopes) in found.items():
                self._known[id_] = PlacementClass(requirements_from(document), scopes)

    def get(self, placement_id: int) -> PlacementClass | None:
        return self._known.get(placement_id)

    def of(self, placement_id: int) -> PlacementClass:
        """Return a class that was learned."""
        return self._known[placement_id]

    async def changed(self, connection: Connection, placement_id: int, change: RetryChange) -> int:
        """Return the class of a retry that asks for other memory or further labels than this one."""
        if change.memory is None and not change.labels:
            return placement_id
        await self.learn(connection, [placement_id])
        before = self.of(placement_id)
        memory = None if change.memory is None else change.memory.applied(before.resources.memory)
        after = adjusted(before.requirements, memory=memory, labels=change.labels)
        if after == before.requirements:
            return placement_id
        return await placement_store.intern(connection, after, before.scopes)
