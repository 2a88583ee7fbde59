"""What the guide says: its examples run, and its tables are those of the code."""

from __future__ import annotations

import configparser
import dataclasses
import io
import re
import sys
from collections.abc import Iterable
from contextlib import redirect_stdout
from datetime import timedelta
from enum import StrEnum
from pathlib import Path
from types import ModuleType

import httpx
import msgspec
import pytest

from hetuflow_agent.executors.environment import task_environment
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.keeper.cgroups import SUBGROUP
from hetuflow_agent.settings import HostSettings
from hetuflow_core import messages as m
from hetuflow_core.fields import shape_of
from hetuflow_core.flow import OnFailure, TriggerRule
from hetuflow_core.jobfile import FlowNode, JobSpec, Kind, Run, load_documents, parse_documents
from hetuflow_core.jobfile.artifacts import ArtifactSpec
from hetuflow_core.jobfile.flow_nodes import Fleet, MapOver
from hetuflow_core.jobfile.kinds import UNSUPPORTED_KINDS
from hetuflow_core.jobfile.run import HttpCall, PythonCall
from hetuflow_core.retry import Reaction, RetryPolicy, RuleCondition
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_server.cli.main import COMMANDS
from hetuflow_server.settings import HttpSettings
from tests.e2e.conftest import System
from tests.support.agent.assignments import assignment_of
from tests.support.http.plain_http import UNENCRYPTED

ROOT = Path(__file__).parents[3]
# What an agent takes to close files and connections after its stop_timeout.
CLOSING = timedelta(seconds=6)
OPEN_CALLS = {
    ("GET", "/healthz"): 200,
    ("GET", "/readyz"): 200,
    # Whoever says nothing is told what is missing.
    ("POST", "/api/v1/auth/login"): 422,
    ("POST", "/api/v1/auth/refresh"): 422,
    ("GET", "/api/v1/auth/oidc/login"): 404,
    ("GET", "/api/v1/auth/oidc/callback"): 401,
    ("POST", "/api/v1/auth/oidc/token"): 422,
}


def page(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def section(text: str, heading: str) -> str:
    return text.split(f"\n## {heading}\n")[1].partition("\n## ")[0]


def first_column(table: str) -> set[str]:
    """What is written as code in the first column of a page's tables."""
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name for cell in cells for name in re.findall(r"`([^`]+)`", cell)}


PYTHON_PAGES = ("howto/python.md", "howto/python-tasks.md", "howto/python-testing.md")


def python_examples(name: str) -> list[tuple[str, str]]:
    """Each example of a page with what it prints."""
    found = re.findall(r"```python\n(.*?)```(?:(?!```python).)*?```text\n(.*?)```", page(name), re.DOTALL)
    assert len(found) == page(name).count("```python\n")
    return found


@pytest.mark.parametrize("name", PYTHON_PAGES)
def test_the_python_examples_print_what_the_page_says(
    system: System, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setenv("HETUFLOW_URL", system.url)
    monkeypatch.setenv("HETUFLOW_API_KEY", system.api_key)
    for number, (code, printed) in enumerate(python_examples(name), start=1):
        output = io.StringIO()
        with redirect_stdout(output):
            module = ModuleType("example")
            monkeypatch.setitem(sys.modules, "example", module)
            exec(compile(code, f"{name} example {number}", "exec", dont_inherit=True), vars(module))
        assert output.getvalue() == printed, code


def test_the_job_files_of_the_page_can_be_applied() -> None:
    examples = re.findall(r"```yaml\n(.*?)```", page("reference/jobs.md"), re.DOTALL)
    kinds = {load_documents(parse_documents(text, "yaml", "jobs.md"))[0].kind for text in examples}
    assert kinds == set(Kind) - UNSUPPORTED_KINDS


def test_the_flows_of_the_page_can_be_applied() -> None:
    for text in re.findall(r"```yaml\n(.*?)```", page("reference/flows.md"), re.DOTALL):
        (spec,) = load_documents(parse_documents(text, "yaml", "flows.md"))
        assert isinstance(spec, JobSpec)
        assert spec.flow is not None


@pytest.mark.parametrize(
    ("heading", "keys"),
    [
        ("A node", shape_of(FlowNode).keys),
        ("When a node starts", TriggerRule),
        ("When a node fails", OnFailure),
        ("Maps", shape_of(MapOver).keys),
        ("Fleets", shape_of(Fleet).keys),
    ],
)
def test_the_keys_of_flows_are_those_of_the_code(heading: str, keys: Iterable[str]) -> None:
    told = {key for key in first_column(section(page("reference/flows.md"), heading)) if "." not in key}
    assert told == set(keys)


@pytest.mark.parametrize(
    ("heading", "struct"),
    [
        ("A job", JobSpec),
        ("`run`", Run),
        ("`artifacts`", ArtifactSpec),
        ("`python`", PythonCall),
        ("`http`", HttpCall),
        ("`retry`", RetryPolicy),
        ("`when`", RuleCondition),
        ("`then`", Reaction),
    ],
)
def test_the_keys_of_job_files_are_those_of_the_code(heading: str, struct: type[msgspec.Struct]) -> None:
    keys = {name for name, field in shape_of(struct).keys.items() if not field.key.refused}
    kind = {"kind"} if struct is JobSpec else set()
    assert first_column(section(page("reference/jobs.md"), heading)) == keys | kind


def test_what_is_refused_for_now_is_what_the_code_refuses() -> None:
    refused = section(page("reference/jobs.md"), "Refused for now")
    lines = [line.split("|") for line in refused.splitlines() if line.startswith("| ")]
    rows = {cells[1].strip(): set(re.findall(r"`(\w+)`", cells[2])) for cells in lines}
    keys = {name for name, field in shape_of(JobSpec).keys.items() if field.key.refused}
    assert rows["job"] == keys
    assert rows["kinds of documents"] == {kind.value for kind in UNSUPPORTED_KINDS}


def test_every_command_is_told_of() -> None:
    table = page("howto/commands.md").split("\n## ")[0]
    named = set(re.findall(r"`(?:hetuflow )?([a-z]+)\b", table))
    assert set(COMMANDS) <= named


def calls_of_the_page() -> set[tuple[str, str]]:
    rows = first_column(section(page("reference/api.md"), "Calls"))
    return {(method, path) for method, _, path in (row.partition(" ") for row in rows)}


def test_the_calls_listed_are_those_of_the_openapi_document(system: System) -> None:
    paths = system.get("/api/v1/openapi.json").json()["paths"]
    served = {(method.upper(), path) for path, methods in paths.items() for method in methods}
    assert calls_of_the_page() == served


def test_no_call_but_the_health_checks_answers_a_stranger(system: System) -> None:
    gateway = {
        tuple(row.split(" ")) for row in first_column(page("reference/gateway.md")) if row.startswith("POST")
    }
    assert len(gateway) == 9
    for method, path in sorted(calls_of_the_page() | gateway):
        asked = re.sub(r"\{\w+\}", "01890f3e-7b3c-7cc0-98c4-dc0c0c07398f", path)
        answer = httpx.request(
            method, f"{system.url}{asked}", content=b"{}" if method == "POST" else None, verify=UNENCRYPTED
        )
        assert answer.status_code == OPEN_CALLS.get((method, path), 401), path


@pytest.mark.parametrize("outcomes", [m.ReportOutcome, m.LogOutcome])
def test_the_outcomes_of_the_protocol_are_those_of_the_code(outcomes: type[StrEnum]) -> None:
    assert {outcome.value for outcome in outcomes} <= first_column(page("reference/gateway.md"))


def test_the_messages_of_the_protocol_are_those_of_the_code() -> None:
    table = page("reference/gateway.md").split("\n## ")[0]
    named = {
        word
        for line in table.splitlines()
        if line.startswith("| `POST")
        for word in re.findall(r"`(\w+)`", line)
    }
    assert named == {kind.value for kind in m.MessageKind}


def test_the_variables_of_a_task_are_those_of_the_code(tmp_path: Path) -> None:
    set_by_us = task_environment({}, assignment_of(["true"], slot=1), ClaimDirectory(tmp_path)).keys()
    assert first_column(section(page("howto/agents.md"), "What a task sees")) == set_by_us


def unit(name: str) -> configparser.SectionProxy:
    parser = configparser.ConfigParser(interpolation=None, strict=False)
    parser.optionxform = str  # type: ignore[assignment,method-assign] # systemd tells cases apart
    parser.read(ROOT / "deploy" / name, encoding="utf-8")
    return parser["Service"]


def stop_timeout(settings: type) -> timedelta:
    (found,) = [field.default for field in dataclasses.fields(settings) if field.name == "stop_timeout"]
    assert isinstance(found, timedelta)
    return found


def test_the_units_leave_time_to_stop_and_do_not_bring_a_replaced_agent_back() -> None:
    agent, server = unit("hetuflow-agent.service"), unit("hetuflow-server.service")
    assert timedelta(seconds=int(agent["TimeoutStopSec"])) > stop_timeout(HostSettings) + CLOSING
    assert timedelta(seconds=int(server["TimeoutStopSec"])) > stop_timeout(HttpSettings)
    assert int(agent["RestartPreventExitStatus"]) == ExitCode.CONFLICT
    assert (agent["KillMode"], server["KillMode"]) == ("process", "mixed")
    assert (agent["Delegate"], agent["DelegateSubgroup"]) == ("yes", SUBGROUP)
    assert agent["ExecReload"] == "/bin/kill -HUP $MAINPID"
    # An agent that was told to shut down ends with 0 and stays away.
    assert (agent["Restart"], server["Restart"]) == ("on-failure", "always")
