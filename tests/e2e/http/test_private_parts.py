"""A library without a private part that the server uses: the server takes a slower path that needs none."""

from __future__ import annotations

import signal
import sys
from threading import Thread

import pytest

from hetuflow_core import messages as m
from hetuflow_core.states import InstanceStatus
from tests.e2e.conftest import System, serving
from tests.support.agent.manual_agent import HandAgent
from tests.support.http import server_with_renamed_part
from tests.support.postgres.databases import DatabaseServer

PRIVATE_PARTS = [
    ("litestar", "dependency_batches"),
    ("litestar", "expected_query_params"),
    ("litestar", "route_handler_map"),
    ("psycopg", "Transformer"),
    ("uvicorn", "HttpToolsProtocol"),
    ("uvicorn", "_start_asgi_task"),
    ("uvicorn", "on_tick"),
]


@pytest.mark.parametrize(("library", "part"), PRIVATE_PARTS)
def test_a_server_works_without(library: str, part: str, database_server: DatabaseServer) -> None:
    program = [sys.executable, str(server_with_renamed_part.__file__), library, part]
    with serving(database_server, program) as system:
        warned = [line for line in system.server.log_lines() if line["level"] == "warning"]
        assert all(line["event"].startswith(f"{library} lacks private parts") for line in warned), warned
        assert any(part in missing for line in warned for missing in line["missing"])

        agent = HandAgent(system.url, system.agent_token)
        agent.register()
        polled: list[m.Polled] = []
        waiting = Thread(target=lambda: polled.append(agent.poll(1, wait_ms=20_000)))
        waiting.start()
        task = system.client.run(system.apply(run={"command": ["true"]}, labels={"zone": "test"}).id)
        waiting.join()
        (assignment,) = polled[0].assignments
        assert assignment.task_id == task.id
        assert agent.start(assignment) is m.ReportOutcome.OK
        assert agent.finish(assignment, InstanceStatus.SUCCEEDED, exit_code=0) is m.ReportOutcome.OK
        assert system.client.task(task.id).status == "succeeded"

        misspelt = system.get("/api/v1/tasks?statsu=pending")
        assert (misspelt.status_code, misspelt.json()["code"]) == (422, "query.invalid")
        assert "did you mean status?" in misspelt.json()["errors"][0]["message"]
        assert system.get("/api/v1/tasks?status=succeeded").json()["total"] == 1

        system.server.signal(signal.SIGTERM)
        assert system.server.wait() == 0


def test_no_private_part_is_missing_in_the_allowed_versions(lone_server: System) -> None:
    assert "lacks private parts" not in lone_server.server.output
