"""Verdicts of readiness probes, reported with a heartbeat when they have changed."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from hetuflow_core.messages import Readiness


class ReadinessReports:
    """Which verdicts have changed since the last report. Used by the heartbeat's thread only."""

    def __init__(self) -> None:
        self._reported: dict[UUID, bool] = {}

    def changed(self, verdicts: Mapping[tuple[UUID, UUID], bool]) -> list[Readiness]:
        """The changed verdicts in {(instance, token): ready}."""
        return [
            Readiness(instance_id, token, ready)
            for (instance_id, token), ready in verdicts.items()
            if self._reported.get(token) is not ready
        ]

    def note_reported(self, readiness: list[Readiness], held: set[UUID]) -> None:
        """The server has taken these; forget tokens of claims that have ended."""
        self._reported |= {each.token: each.ready for each in readiness}
        self._reported = {token: ready for token, ready in self._reported.items() if token in held}
