"""Settings that may change while the agent runs: its own configuration, under what it was given by command.

What was given is kept in DIR/configured.json and holds after a restart too, until it is taken back.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path

import msgspec

from hetuflow_agent.settings import AgentSettings
from hetuflow_core.agent.commands import AgentConfiguration, LogLevel
from hetuflow_core.agent.configuration import check_configuration
from hetuflow_core.errors import DataDirectoryUnusable, HetuflowError, HostBlocked

NOTHING_GIVEN = AgentConfiguration()


class LiveSettings:
    def __init__(self, own: AgentSettings) -> None:
        """Read what was given in an earlier life; a folder that is not there yet holds nothing."""
        self._own = own
        self._file = own.agent.data_dir / "configured.json"
        self.given = self._read()

    @property
    def slots(self) -> int:
        return self._own.agent.slots if self.given.slots is None else self.given.slots

    @property
    def labels(self) -> Mapping[str, str]:
        return self._own.agent.labels if self.given.labels is None else self.given.labels

    @property
    def taints(self) -> tuple[str, ...]:
        return self._own.agent.taints if self.given.taints is None else tuple(self.given.taints)

    @property
    def log_level(self) -> LogLevel:
        return self._own.log.level if self.given.log_level is None else self.given.log_level

    def adopt(self, own: AgentSettings) -> None:
        """Its own configuration was read again; what was given stays above it."""
        self._own = own

    def change(self, wanted: AgentConfiguration) -> None:
        """Let `wanted` hold from now on; on disk when this returns, or not at all."""
        check_configuration(wanted)
        given = wanted.over(self.given)
        self._write(given)
        self.given = given

    def _read(self) -> AgentConfiguration:
        try:
            given = msgspec.json.decode(self._file.read_bytes(), type=AgentConfiguration)
            if given != NOTHING_GIVEN:
                check_configuration(given)
        except (FileNotFoundError, NotADirectoryError):
            return NOTHING_GIVEN
        except (OSError, msgspec.MsgspecError, HetuflowError) as error:
            raise DataDirectoryUnusable(
                f"{self._file} cannot be used ({error}): remove it, and the agent's own settings count."
            ) from error
        return given

    def _write(self, given: AgentConfiguration) -> None:
        new = self._file.with_suffix(".new")
        try:
            _write_durably(new, msgspec.json.encode(given))
            new.replace(self._file)
        except OSError as error:
            raise HostBlocked(f"{self._file} cannot be written ({error.strerror}).") from error


def _write_durably(path: Path, content: bytes) -> None:
    descriptor = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
