"""Real processes of ours, started and watched by tests."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Self

import psutil

from tests.support.waiting import wait_until

_PATIENCE_SECONDS = 20
HETUFLOW = [sys.executable, "-m", "hetuflow_server"]
AGENT = [sys.executable, "-m", "hetuflow_agent"]


# Set by coverage for the processes we start; it makes them several times slower to start.
_MEASURED = "COVERAGE_PROCESS_"


def clean_environment(**variables: str) -> dict[str, str]:
    """Our environment without any setting of Hetuflow's that happens to be set, plus `variables`."""
    left_out = ("HETUFLOW_", _MEASURED)
    return {name: value for name, value in os.environ.items() if not name.startswith(left_out)} | variables


def measured_environment(**variables: str) -> dict[str, str]:
    """The same for processes that many tests share: what they execute counts as covered."""
    measured = {name: value for name, value in os.environ.items() if name.startswith(_MEASURED)}
    return clean_environment(**variables) | measured


def run(
    command: Sequence[str | Path],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    timeout: float = 60,
) -> subprocess.CompletedProcess[str]:
    """Run to the end; the caller looks at code and output."""
    return subprocess.run(
        command,
        env=env or clean_environment(),
        cwd=cwd,
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
        stdin=subprocess.DEVNULL,
    )


class Running:
    """A process in a group of its own, with its output gathered; killed with its children at the end."""

    def __init__(
        self, command: Sequence[str | Path], *, env: Mapping[str, str], cwd: Path | None = None
    ) -> None:
        self._process = subprocess.Popen(
            command,
            env=env,
            cwd=cwd,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            process_group=0,
        )
        self.lines: list[str] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def output(self) -> str:
        return "".join(self.lines)

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def log_lines(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in list(self.lines) if line.startswith("{")]

    def await_log(self, event: str, *, timeout: float = 90) -> dict[str, Any]:
        def find() -> dict[str, Any] | None:
            found = next((line for line in self.log_lines() if line.get("event") == event), None)
            assert found or not self.ended, f"ended without saying {event!r}:\n{self.output}"
            return found

        return wait_until(find, timeout=timeout, what=f"the log line {event!r}") or {}

    def signal(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def interrupt_like_a_terminal(self) -> None:
        """Ctrl-C reaches every process of the foreground group."""
        os.killpg(self._process.pid, signal.SIGINT)

    def wait(self, timeout: float = 30) -> int:
        code = self._process.wait(timeout)
        self._reader.join(5)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Ask first, so that it stops its children in order; what is left after that is killed."""
        if not self.ended:
            family = psutil.Process(self.pid).children(recursive=True)
            self._process.terminate()
            try:
                self._process.wait(_PATIENCE_SECONDS)
            except subprocess.TimeoutExpired:
                self._process.kill()
            for child in family:
                with suppress(psutil.NoSuchProcess):
                    child.kill()
        self._process.wait()
        self._reader.join(5)
        if self._process.stdout:
            self._process.stdout.close()

    def _read(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self.lines.append(line)


def gone(pid: int) -> bool:
    """True when no such process exists, or only its zombie does."""
    try:
        return psutil.Process(pid).status() == psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return True
