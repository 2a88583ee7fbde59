"""What daemons answer to their readiness probes, told with a heartbeat when it has changed."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from hetuflow_core.messages import Readiness


class ReadinessBook:
    """What was told last. Used by the heartbeat's thread alone."""

    def __init__(self) -> None:
        self._told: dict[UUID, bool] = {}

    def changed(self, verdicts: Mapping[tuple[UUID, UUID], bool]) -> list[Readiness]:
        """What is new, of {(instance, token): ready}."""
        return [
            Readiness(instance_id, token, ready)
            for (instance_id, token), ready in verdicts.items()
            if self._told.get(token) is not ready
        ]

    def told(self, readiness: list[Readiness], held: set[UUID]) -> None:
        """The server has these; tokens that are not held any more are forgotten."""
        self._told |= {one.token: one.ready for one in readiness}
        self._told = {token: ready for token, ready in self._told.items() if token in held}
