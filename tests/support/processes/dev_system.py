"""A development system under test."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from tests.support.processes.processes import HETUFLOW, Running, clean_environment
from tests.support.waiting import wait_until


class Dev(Running):
    def __init__(self, data: Path, *arguments: str, **variables: str) -> None:
        self.data = data
        command = [*HETUFLOW, "dev", "--port", "0", "--data", data, *arguments]
        super().__init__(command, env=clean_environment(**variables), cwd=data.parent)

    def info(self, *, timeout: float = 60) -> dict[str, Any]:
        """Wait until it is ready."""

        def find() -> bool:
            assert not self.ended, f"it ended:\n{self.output}"
            return (self.data / "dev.json").exists()

        wait_until(find, timeout=timeout, what="dev.json")
        found: dict[str, Any] = json.loads((self.data / "dev.json").read_text())
        return found
