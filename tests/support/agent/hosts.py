"""The host of a real agent: its data folder stays while agents come and go."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from uuid import UUID, uuid4

from hetuflow_core.resources.tasks import TaskDetail
from tests.e2e.conftest import System
from tests.support.agent.keepers import end_keeper
from tests.support.processes.processes import AGENT, Running, clean_environment
from tests.support.waiting import wait_until


class Host:
    """One agent's host: its data folder stays while agents come and go."""

    def __init__(self, server: System, data: Path, stack: ExitStack) -> None:
        self.server = server
        self.data = data
        self.name = self.label = f"host-{uuid4().hex[:8]}"
        self._stack = stack

    def neighbour(self) -> Host:
        """Another host that takes the same work."""
        other = Host(self.server, self.data.with_name("neighbour"), self._stack)
        other.label = self.label
        self._stack.callback(end_keeper, other.data)
        return other

    def agent(
        self, program: Sequence[str] = AGENT, variables: Mapping[str, str] | None = None, **settings: str
    ) -> Running:
        """Start an agent that takes work meant for this host only; it has registered when this returns."""
        environment = clean_environment(
            HETUFLOW_AGENT__SERVER_URL=self.server.url,
            HETUFLOW_AGENT__TOKEN=self.server.agent_token,
            HETUFLOW_AGENT__NAME=self.name,
            HETUFLOW_AGENT__SLOTS="4",
            HETUFLOW_AGENT__DATA_DIR=str(self.data),
            HETUFLOW_AGENT__LABELS=f"host={self.label}",
        )
        environment |= {f"HETUFLOW_AGENT__{key.upper()}": value for key, value in settings.items()}
        environment |= variables or {}
        running = self._stack.enter_context(Running(program, env=environment))
        running.await_log("ready")
        return running

    def run(self, script: str, **spec: object) -> TaskDetail:
        job = self.server.apply(
            run={"script": script}, placement={"labels": {"host": self.label}}, kill_grace="500ms", **spec
        )
        return self.server.client.run(job.id)

    def printed(self, instance: UUID) -> str:
        return self.server.client.logs(instance).decode()

    def await_output(self, instance: UUID, wanted: str) -> str:
        return wait_until(
            lambda: (text := self.printed(instance)) and wanted in text and text,
            timeout=30,
            what=f"{wanted!r} in the log",
        )
