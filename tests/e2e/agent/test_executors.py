"""Executors beyond commands, on a real agent: requests, and one that another package brings."""

from __future__ import annotations

import asyncio
import importlib
import json
import os
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from textwrap import dedent

import pytest
import yaml

from hetuflow_core.errors import Invalid
from hetuflow_core.resources.tasks import TaskDetail
from tests.e2e.conftest import System
from tests.support.http.webserver import WebServer, reply, serving_web
from tests.support.processes.processes import AGENT, Running, measured_environment
from tests.support.waiting import wait_until

ROOT = Path(__file__).parents[3]
HERE = {"placement": {"labels": {"zone": "executors"}}}

_SECRET_TASKS = """
from hetuflow_core.client import TaskContext, task


def told(context):
    value = context.secrets["executors"]
    print(value)
    return {"length": len(value), "said": value}


@task
def in_thread(context: TaskContext):
    return told(context)


@task(process=True)
def in_process(context: TaskContext):
    return told(context)


@task
def fails(context: TaskContext):
    raise ValueError(context.secrets["executors"])
"""


@pytest.fixture(scope="module")
def packages(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder of packages for the agent, as a virtual environment has one."""
    folder = tmp_path_factory.mktemp("packages")
    (folder / "acme_executors.py").write_text(written_in_the_checklist("acme_executors.py"))
    (folder / "secret_tasks.py").write_text(_SECRET_TASKS)
    # What `pip install` makes of it.
    metadata = folder / "acme_executors-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: acme-executors\nVersion: 1.0\n")
    project = tomllib.loads(written_in_the_checklist("pyproject.toml"))["project"]
    entries = project["entry-points"]["hetuflow.executors"] | {"broken": "acme_executors:Nothing"}
    lines = [f"{name} = {value}" for name, value in entries.items()]
    (metadata / "entry_points.txt").write_text("\n".join(["[hetuflow.executors]", *lines]))
    return folder


def written_in_the_checklist(title: str) -> str:
    """What whoever follows it would write into that file."""
    page = (ROOT / "docs/checklists/new-executor.md").read_text(encoding="utf-8")
    (block,) = re.findall(
        rf'^ +```\w+ title="{re.escape(title)}"\n(.*?)^ +```$', page, re.MULTILINE | re.DOTALL
    )
    return dedent(block)


@pytest.fixture(scope="module")
def equipped(system: System, packages: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A second agent of the system, with more executors than the first."""
    environment = measured_environment(
        HETUFLOW_AGENT__SERVER_URL=system.url,
        HETUFLOW_AGENT__TOKEN=system.agent_token,
        HETUFLOW_AGENT__NAME="equipped",
        HETUFLOW_AGENT__SLOTS="8",
        HETUFLOW_AGENT__DATA_DIR=str(tmp_path_factory.mktemp("equipped") / "data"),
        HETUFLOW_AGENT__LABELS="zone=executors",
        HETUFLOW_AGENT__HTTP_ALLOW="127.0.0.1/32",
        HETUFLOW_AGENT__PYTHON_MODULES="python_tasks,secret_tasks",
        PYTHONPATH=os.pathsep.join([str(packages), str(ROOT / "examples")]),
    )
    with Running(AGENT, env=environment) as agent:
        agent.await_log("Registered.")
        yield agent


@pytest.fixture
def web() -> Iterator[WebServer]:
    routes = {"/ok": reply(200, b'{"id": 7}', content_type="application/json"), "/no": reply(503, b"busy")}
    with serving_web(routes) as server:
        yield server


def finish(system: System, run: dict[str, object], **spec: object) -> TaskDetail:
    job = system.apply(run=run, **{**HERE, **spec})
    return system.client.wait(system.client.run(job.id).id, timeout=60)


def log_of(system: System, task: TaskDetail, stream: str) -> str:
    return system.client.logs(task.instances[-1].id, stream).decode()


def test_a_request_is_made_and_judged(system: System, equipped: Running, web: WebServer) -> None:
    http = {
        "url": "{{ params.url }}/ok",
        "method": "POST",
        "json": {"n": "{{ params.n }}", "t": "n={{ params.n }}"},
    }
    task = finish(system, {"http": http}, params={"url": web.url, "n": 3})
    assert (task.status, task.exit_code) == ("succeeded", 0)
    assert web.asked[0].body == b'{"n":3,"t":"n=3"}'
    assert web.asked[0].headers["x-hetuflow-task-id"] == str(task.id)
    assert log_of(system, task, "stdout") == '{"id": 7}'

    refused = finish(
        system,
        {"http": {"url": f"{web.url}/no"}},
        retry={
            "max_attempts": 3,
            "delay": "0s",
            "rules": [{"when": {"output": "^< 503"}, "then": {"retry": False}}],
        },
    )
    assert (refused.status, refused.attempts) == ("failed", 1)
    assert refused.instances[0].reason == "http_status"
    assert "< 503" in log_of(system, refused, "stderr")


def test_a_request_that_takes_too_long_times_out(system: System, equipped: Running) -> None:
    with serving_web({"/": lambda request: request.rfile.read(1) and None}) as slow:
        task = finish(system, {"http": {"url": f"{slow.url}/"}}, timeout="300ms")
    assert task.instances[0].status == "timed_out"


def test_a_request_can_be_cancelled(system: System, equipped: Running) -> None:
    with serving_web({"/": lambda request: request.rfile.read(1) and None}) as slow:
        job = system.apply(run={"http": {"url": f"{slow.url}/"}}, **HERE)
        task = system.client.run(job.id)
        wait_until(lambda: slow.asked, timeout=30, what="the request")
        system.client.cancel(task.id)
        assert system.client.wait(task.id, timeout=30).status == "cancelled"


def test_an_agent_refuses_its_own_host_unless_it_is_listed(system: System, web: WebServer) -> None:
    task = finish(system, {"http": {"url": f"{web.url}/ok"}}, placement={"labels": {"zone": "test"}})
    assert (task.status, task.instances[0].reason) == ("failed", "http_address_refused")
    assert web.asked == []


def test_the_example_notifies(system: System, equipped: Running, web: WebServer) -> None:
    document = yaml.safe_load((ROOT / "examples/http.yaml").read_text()) | HERE
    system.client.apply([document])
    job = system.client.job("default", document["name"])
    task = system.client.run(job.id, params={"url": f"{web.url}/ok"})
    assert system.client.wait(task.id, timeout=60).status == "succeeded"
    assert json.loads(web.asked[0].body) == {"text": "report for friday is ready", "rows": 3}


def test_the_executors_of_the_checklist_run(system: System, equipped: Running) -> None:
    equipped.await_log("executor could not be loaded, leaving it out")
    assert {"archive", "shout"} < set(system.client.agent("equipped").executors)
    document = yaml.safe_load(written_in_the_checklist("shout.yaml"))
    task = finish(system, document["run"] | {"env": {"MARK": "!"}}, params=document["params"], placement={})
    assert (task.status, task.output) == ("succeeded", {"length": "5"})
    assert task.instances[0].agent == "equipped"
    assert log_of(system, task, "stdout") == "HELLO!\n"

    failed = finish(system, {"executor": "shout", "with": {"text": "x", "code": 3}})
    assert (failed.status, failed.exit_code) == ("failed", 3)
    wrong = finish(system, {"executor": "shout", "with": {"text": 3}})
    assert (wrong.status, wrong.instances[0].reason) == ("failed", "job_invalid")
    assert "nothing to shout" in str(wrong.instances[0].message)
    late = finish(system, {"executor": "shout", "with": {"text": "x", "after": 600}}, timeout="300ms")
    assert late.instances[0].status == "timed_out"

    files = {"inputs": [{"path": "a.txt", "content": "a"}], "outputs": ["archive.tar"]}
    archived = finish(system, {"executor": "archive", "with": {"paths": ["a.txt"]}, "artifacts": files})
    assert (archived.status, log_of(system, archived, "stdout")) == ("succeeded", "a.txt\n")
    (kept,) = system.client.artifacts(archived.instances[0].id)
    assert (kept.path, kept.size) == ("archive.tar", 10240)


def example_jobs(system: System, name: str) -> list[str]:
    documents = [one | HERE for one in yaml.safe_load_all((ROOT / "examples" / name).read_text())]
    system.client.apply(documents)
    return [str(one["name"]) for one in documents]


def test_the_example_functions_run(system: System, equipped: Running) -> None:
    count, crunch = example_jobs(system, "python.yaml")
    counted = system.client.run(system.client.job("default", count).id, params={"text": "a b"})
    crunched = system.client.run(system.client.job("default", crunch).id, params={"numbers": [3, 4]})
    counted, crunched = (system.client.wait(one.id, timeout=60) for one in (counted, crunched))
    assert (counted.status, crunched.status) == ("succeeded", "succeeded")
    assert log_of(system, counted, "stdout") == "a\nb\n"
    assert log_of(system, counted, "stderr") == "INFO hetuflow.task: counting since 2026-01-01\n"


def test_functions_are_queued_from_python(
    system: System, equipped: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "examples"))
    poll = importlib.import_module("python_tasks").poll
    for _ in range(2):  # the second finds the job of the first
        task = system.client.wait(system.client.enqueue(poll, {"seconds": 0}).id, timeout=60)
        assert (task.status, task.job) == ("succeeded", "python-tasks.poll")
        assert task.instances[0].agent == "equipped"
    crunch = importlib.import_module("python_tasks").crunch
    monkeypatch.setenv("HETUFLOW_URL", system.url)
    monkeypatch.setenv("HETUFLOW_API_KEY", system.api_key)
    handle = crunch.enqueue(numbers=[3, 4])
    assert handle.result(timeout=60) == crunch(numbers=[3, 4])
    again = crunch.with_options(client=system.client, idempotency_key=str(handle.id)).enqueue(numbers=[1])
    assert again.wait(timeout=60).status == "succeeded"

    async def later() -> object:
        return await (await crunch.enqueue_async(numbers=[2])).result(timeout=60)

    assert asyncio.run(later()) == crunch(numbers=[2])
    with pytest.raises(Invalid):
        crunch.enqueue(numbers="none")


def test_a_function_fails_is_cancelled_and_times_out(system: System, equipped: Running) -> None:
    run = {"python": {"function": "python_tasks:count_words", "kwargs": {"text": "x"}}}
    wrong = finish(system, run)
    assert (wrong.status, wrong.instances[0].reason) == ("failed", "job_invalid")
    assert "since: is missing" in str(wrong.instances[0].message)
    run = {"python": {"function": "python_tasks:poll", "kwargs": {"seconds": 60}}}
    assert finish(system, run, timeout="300ms").instances[0].status == "timed_out"
    foreign = finish(system, {"python": {"function": "os:getcwd"}})
    assert (foreign.status, foreign.instances[0].reason) == ("failed", "job_invalid")


def test_requests_and_functions_are_given_secrets(
    system: System, equipped: Running, web: WebServer, packages: Path
) -> None:
    value = "hunter22-of-executors"
    system.client.set_secret("default", "executors", value)
    headers = {"X-Key": {"secret": "executors", "prefix": "k="}}
    with serving_web({"/elsewhere": reply(200, value.encode())}) as other:
        go = reply(307, Location=f"http://127.0.0.1:{other.port}/elsewhere")
        with serving_web({"/go": go}) as first:
            task = finish(system, {"http": {"url": f"{first.url}/go", "headers": headers}})
    assert task.status == "succeeded"
    assert first.asked[0].headers["x-key"] == f"k={value}"
    assert "x-key" not in other.asked[0].headers
    assert log_of(system, task, "stdout") == "*" * len(value)
    for function in ("in_thread", "in_process"):
        run = {"python": {"function": f"secret_tasks:{function}"}, "secrets": ["executors"]}
        told = finish(system, run)
        assert (told.status, told.output) == ("succeeded", {"length": len(value), "said": "*" * len(value)})
        assert log_of(system, told, "stdout") == "*" * len(value) + "\n"
    run = {"python": {"function": "secret_tasks:fails"}, "secrets": ["executors"]}
    assert "*" * len(value) in str(finish(system, run).instances[0].message)


def test_work_waits_for_an_agent_that_has_its_executor(system: System, equipped: Running) -> None:
    """Both agents are free, and neither has it: it stays where it is while later work passes."""
    nobody = system.client.run(system.apply(run={"executor": "spark"}).id)
    assert finish(system, {"command": ["true"]}, placement={}).status == "succeeded"
    assert system.client.task(nobody.id).status == "pending"
    system.client.cancel(nobody.id)
