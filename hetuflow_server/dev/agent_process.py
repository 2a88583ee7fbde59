"""The agent of a development system: a separate process that ends with this one."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping

import structlog

from hetuflow_core.errors import HostBlocked
from hetuflow_server.embedded.spawning import die_with_parent

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.dev")

_KILL_AFTER_SECONDS = 15.0


class AgentProcess:
    name = "agent"

    def __init__(self, environment: Callable[[], Mapping[str, str]]) -> None:
        """`environment` is called at each start, because the server's address is known only then."""
        self._environment = environment
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def pid(self) -> int:
        if self._process is None:
            raise RuntimeError("the agent has not been started")
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    async def start(self) -> None:
        try:
            self._process = subprocess.Popen(  # noqa: ASYNC220 - a program of this project; spawned from the main thread on purpose
                [sys.executable, "-m", "hetuflow_agent"],
                stdin=subprocess.DEVNULL,
                env=dict(self._environment()),
                # Ctrl-C in the terminal must not reach the agent: `stop` ends it in order.
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGTERM),  # noqa: PLW1509 - takes no lock, see there
            )
        except OSError as error:
            raise HostBlocked(f"The agent cannot be started ({error.strerror}).") from error

    async def stop(self) -> None:
        if self._process is None or self._process.poll() is not None:
            return
        self._process.send_signal(signal.SIGTERM)
        try:
            await asyncio.to_thread(self._process.wait, _KILL_AFTER_SECONDS)
        except subprocess.TimeoutExpired:
            log.warning(
                "agent did not stop in time, killing it",
                pid=self._process.pid,
                seconds=_KILL_AFTER_SECONDS,
            )
            self._process.kill()
            self._process.wait()


def agent_environment(base: Mapping[str, str], **settings: str) -> dict[str, str]:
    """Return this process's environment without server settings, plus the agent's settings."""
    server_settings = (
        "HETUFLOW_DATABASE__",
        "HETUFLOW_SERVER__",
        "HETUFLOW_LEADER__",
        "HETUFLOW_RETENTION__",
    )
    inherited = {name: value for name, value in base.items() if not name.startswith(server_settings)}
    return inherited | {f"HETUFLOW_AGENT__{key.upper()}": value for key, value in settings.items()}
