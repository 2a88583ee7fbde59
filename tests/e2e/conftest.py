"""One real server and one real agent per test worker, on a database of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from uuid import uuid4

import httpx
import pytest
from click.testing import CliRunner

from hetuflow_core.client import Hetuflow
from hetuflow_core.resources.jobs import Job
from hetuflow_server.cli.main import hetuflow
from tests.support.http.plain_http import UNENCRYPTED
from tests.support.postgres.databases import DatabaseServer
from tests.support.processes.processes import (
    AGENT,
    HETUFLOW,
    Running,
    clean_environment,
    measured_environment,
)
from tests.support.waiting import wait_until


@dataclass(frozen=True)
class System:
    url: str
    database_url: str
    api_key: str
    agent_token: str
    client: Hetuflow
    server: Running

    def environment(self, **variables: str) -> dict[str, str]:
        """For commands that talk to this system."""
        return clean_environment(HETUFLOW_URL=self.url, HETUFLOW_API_KEY=self.api_key, **variables)

    def apply(self, **spec: object) -> Job:
        """Apply a job under a name nobody else uses."""
        name = f"job-{uuid4().hex[:12]}"
        self.client.apply([{"kind": "job", "name": name, **spec}])
        return self.client.job("default", name)

    def get(self, path: str, **headers: str) -> httpx.Response:
        return httpx.get(
            f"{self.url}{path}",
            headers={"Authorization": f"Bearer {self.api_key}", **headers},
            verify=UNENCRYPTED,
            timeout=60,  # the document of all calls is made when it is first asked for
        )


def command_on(database_url: str, *arguments: str) -> str:
    """What `hetuflow` prints, run in this process: to start one takes longer than all it does here."""
    environment: dict[str, str | None] = {name: None for name in os.environ if name.startswith("HETUFLOW_")}
    environment["HETUFLOW_DATABASE__URL"] = database_url
    result = CliRunner().invoke(hetuflow, arguments, env=environment)
    assert result.exit_code == 0, (result.output, result.exception)
    return result.stdout.strip()


@contextmanager
def serving(database_server: DatabaseServer, program: Sequence[str] = HETUFLOW) -> Iterator[System]:
    """A server on a database of its own, bootstrapped as a person would: key and token from the database."""
    database_url = database_server.clone(f"e2e_{uuid4().hex[:12]}")
    api_key = command_on(database_url, "key", "create", "--role", "admin", "-q")
    token = command_on(database_url, "agent", "token", "create", "-q")
    environment = measured_environment(
        HETUFLOW_DATABASE__URL=database_url,
        HETUFLOW_SERVER__SECRET_KEY="s" * 48,
        HETUFLOW_SERVER__PORT="0",
        # Receivers of tests are on this computer.
        HETUFLOW_WEBHOOKS__ALLOW="127.0.0.0/8",
    )
    with Running([*program, "server"], env=environment) as server:
        url = server.await_log("Listening.")["url"]
        with Hetuflow(url, api_key) as client:
            yield System(url, database_url, api_key, token, client, server)


@pytest.fixture(scope="session")
def lone_server(database_server: DatabaseServer) -> Iterator[System]:
    """A server without any agent: tests speak to its gateway themselves."""
    with serving(database_server) as lone:
        yield lone


@pytest.fixture(scope="session")
def system(database_server: DatabaseServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[System]:
    """A server with an agent that runs what it is given."""
    with serving(database_server) as served:
        environment = measured_environment(
            HETUFLOW_AGENT__SERVER_URL=served.url,
            HETUFLOW_AGENT__TOKEN=served.agent_token,
            HETUFLOW_AGENT__NAME="worker",
            HETUFLOW_AGENT__SLOTS="8",
            HETUFLOW_AGENT__DATA_DIR=str(tmp_path_factory.mktemp("agent") / "data"),
            HETUFLOW_AGENT__LABELS="zone=test",
        )
        with Running(AGENT, env=environment):
            wait_until(lambda: served.client.status().agents, timeout=30, what="the agent to register")
            yield served
