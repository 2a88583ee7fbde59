"""How the self-test's clients end, on a real server: what was acknowledged can still come to something."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

from hetuflow_selftest.history import History
from hetuflow_selftest.settings import quick
from hetuflow_selftest.workload.client import Client
from hetuflow_selftest.workload.documents import ON_EVENT, Documents
from hetuflow_selftest.workload.workload import Workload
from tests.e2e.conftest import System


async def test_what_answers_events_is_there_when_they_are_matched(
    lone_server: System, tmp_path: Path
) -> None:
    settings = quick(1, ())
    documents = Documents(settings, tmp_path / "payload", tmp_path / "traces", "run")
    with closing(History(tmp_path, "clients")) as history:
        client = Client([lone_server.url], lone_server.api_key, history)
        workload = Workload(client, documents, settings)
        await workload.apply(documents.at_first())
        await workload.end()
        await client.close()
    enabled = {job.name: job.enabled for job in lone_server.client.jobs()}
    names = {document["name"] for document in documents.at_first()}
    assert {name for name in names if enabled[name]} == {ON_EVENT}
