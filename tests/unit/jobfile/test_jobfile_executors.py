"""`run` beyond commands and scripts: requests, functions and executors of other packages."""

from __future__ import annotations

from typing import Any

import pytest

from hetuflow_core.errors import Invalid
from hetuflow_core.jobfile import (
    Executor,
    JobSpec,
    digest,
    from_document,
    load_documents,
    raw_documents,
    to_document,
)
from hetuflow_core.jobfile.run import HttpCall, OtherCall, PythonCall


def job(run: dict[str, Any], **keys: Any) -> dict[str, Any]:
    return {"kind": "job", "name": "a", "run": run, **keys}


def spec_of(run: dict[str, Any]) -> JobSpec:
    (spec,) = load_documents(raw_documents([job(run)], path=""))
    assert isinstance(spec, JobSpec)
    return spec


def faults_of(run: dict[str, Any]) -> dict[str, str]:
    with pytest.raises(Invalid) as raised:
        spec_of(run)
    return {fault.field.removeprefix("[0]").removeprefix("."): fault.message for fault in raised.value.faults}


def test_a_request_has_defaults() -> None:
    spec = spec_of({"http": {"url": "https://example.org/"}})
    assert spec.run.http == HttpCall(url="https://example.org/", method="GET", expected_status=("2xx",))
    assert spec.run.executor is Executor.HTTP
    assert spec.requirements.executor == "http"
    assert spec.placement.executor is None


def test_a_request_says_all_it_can() -> None:
    http = {
        "url": "https://example.org/{{ params.x }}",
        "method": "POST",
        "headers": {"X-A": "{{ params.x }}", "X-B": 1},
        "json": {"list": ["{{ params.x }}", 1, None, {"deep": True}]},
        "expected_status": [404, "2xx", 404],
        "redirects": 0,
    }
    spec = spec_of({"http": http})
    assert spec.run.http == HttpCall(
        url="https://example.org/{{ params.x }}",
        method="POST",
        headers={"X-A": "{{ params.x }}", "X-B": "1"},
        json=http["json"],
        expected_status=("2xx", "404"),
        redirects=0,
    )
    assert from_document(to_document(spec)) == spec


def test_one_status_needs_no_list() -> None:
    assert spec_of({"http": {"url": "http://a/", "expected_status": 204}}).run.http.expected_status == (
        "204",
    )


@pytest.mark.parametrize("json", [0, False, "", [], {}])
def test_any_json_value_can_be_sent(json: Any) -> None:
    spec = spec_of({"http": {"url": "http://a/", "json": json}})
    assert spec.run.http.json == json
    assert from_document(to_document(spec)) == spec


@pytest.mark.parametrize(
    ("run", "field", "message"),
    [
        ({"http": {}}, "run.http", '"url" is missing: say what to request.'),
        ({"http": {"url": "example.org"}}, "run.http.url", "must begin with http:// or https://."),
        ({"http": {"url": "file:///etc/passwd"}}, "run.http.url", "must begin with"),
        ({"http": {"url": "https://u:p@a/"}}, "run.http.url", "holds a user or password"),
        ({"http": {"url": "https://a/{{ nope }}"}}, "run.http.url", "unknown name"),
        ({"http": {"url": "http://a/", "method": "get"}}, "run.http.method", "is not allowed here"),
        (
            {"http": {"url": "http://a/", "headers": {"a b": "c"}}},
            'run.http.headers["a b"]',
            "name of a header",
        ),
        ({"http": {"url": "http://a/", "headers": {"Host": "c"}}}, "run.http.headers.Host", "set by the"),
        ({"http": {"url": "http://a/", "body": "x", "json": 1}}, "run.http", "exclude each other"),
        ({"http": {"url": "http://a/", "json": {"a": ["{{ x }}"]}}}, "run.http.json.a[0]", "unknown name"),
        (
            {"http": {"url": "http://a/", "expected_status": 99}},
            "run.http.expected_status",
            "a status such as",
        ),
        (
            {"http": {"url": "http://a/", "expected_status": ["6xx"]}},
            "run.http.expected_status[0]",
            "a status",
        ),
        ({"http": {"url": "http://a/", "redirects": 11}}, "run.http.redirects", "between 0 and 10"),
        ({"http": {"url": "http://a/", "urll": 1}}, "run.http.urll", 'did you mean "url"?'),
        ({"http": {"url": "http://a/"}, "env": {"A": "b"}}, "run.env", "starts no process"),
        ({"http": {"url": "http://a/"}, "user": "reports"}, "run.user", "starts no process"),
        ({"http": {"url": "http://a/"}, "workdir": "/srv"}, "run.workdir", "starts no process"),
        ({"http": {"url": "http://a/"}, "command": ["x"]}, "run", "command and http exclude each other"),
        ({"http": {"url": "http://a/"}, "shell": "sh"}, "run.shell", "only a script has a shell"),
        ({"python": {}}, "run.python", '"function" is missing'),
        ({"python": {"function": "report"}}, "run.python.function", "a module and a function"),
        ({"python": {"function": "a.b:c()"}}, "run.python.function", "a module and a function"),
        ({"python": {"function": "a:b", "kwargs": [1]}}, "run.python.kwargs", "must be a mapping"),
        ({"python": {"function": "a:b"}, "env": {"A": "b"}}, "run.env", "starts no process"),
        (
            {"command": ["x"], "artifacts": {"outputs": ["../x"]}},
            "run.artifacts.outputs[0]",
            "must be below",
        ),
        ({"command": ["x"], "artifacts": {"outputs": ["/x"]}}, "run.artifacts.outputs[0]", "must be below"),
        (
            {"command": ["x"], "artifacts": {"inputs": [{"path": "a"}]}},
            "run.artifacts.inputs[0]",
            "either content or",
        ),
        (
            {"command": ["x"], "artifacts": {"inputs": [{"path": "*", "content": ""}]}},
            "run.artifacts.inputs[0].path",
            "one file",
        ),
        (
            {"command": ["x"], "artifacts": {"inputs": [{"path": "a", "from": {"path": "b"}}]}},
            "run.artifacts.inputs[0].from",
            "either job or task",
        ),
        (
            {"command": ["x"], "artifacts": {"inputs": [{"path": "a", "from": {"path": "b", "task": "x"}}]}},
            "run.artifacts.inputs[0].from.task",
            "id of a task",
        ),
        (
            {"command": ["x"], "artifacts": {"inputs": [{"path": "a", "content": "1"}] * 2}},
            "run.artifacts",
            "twice",
        ),
        (
            {"http": {"url": "http://a/"}, "artifacts": {"outputs": ["a"]}},
            "run.artifacts",
            "starts no process",
        ),
        ({"executor": "Docker"}, "run.executor", "is not allowed here"),
        ({"executor": "http"}, "run.executor", "has a key of its own"),
        ({"executor": "spark", "with": [1]}, "run.with", "must be a mapping"),
        ({"command": ["x"], "with": {"a": 1}}, "run.with", "goes with executor"),
    ],
)
def test_what_cannot_be_carried_out_is_refused(run: dict[str, Any], field: str, message: str) -> None:
    faults = faults_of(run)
    assert message in faults[field], faults


def test_an_executor_of_another_package_is_named_with_what_it_is_told() -> None:
    run = {"executor": "spark", "with": {"jar": "{{ params.jar }}", "n": 3}, "env": {"A": "b"}}
    spec = spec_of(run)
    assert spec.run.other == OtherCall(executor="spark", options={"jar": "{{ params.jar }}", "n": 3})
    assert spec.requirements.executor == "spark"
    assert from_document(to_document(spec)) == spec
    assert digest(spec) != digest(spec_of({**run, "with": {"n": 4}}))


def test_commands_need_no_particular_executor() -> None:
    assert spec_of({"command": ["true"]}).requirements.executor is None
    assert spec_of({"script": "true"}).requirements.executor is None


@pytest.mark.parametrize("kwargs", [None, {}, {"a": ["{{ params.b }}", 1]}])
def test_a_function_is_named_with_its_arguments(kwargs: dict[str, Any] | None) -> None:
    python = {"function": "acme.reports:nightly"} | ({} if kwargs is None else {"kwargs": kwargs})
    spec = spec_of({"python": python})
    assert spec.run.python == PythonCall(function="acme.reports:nightly", kwargs=kwargs)
    assert spec.requirements.executor == "python"
    assert from_document(to_document(spec)) == spec


def test_files_go_with_a_command() -> None:
    artifacts = {
        "inputs": [
            {"path": "conf/a.json", "content": "{{ params.x }}"},
            {"path": "data", "from": {"job": "etl", "path": "out/data"}},
            {"path": "one", "from": {"task": "{{ params.task }}", "path": "x"}},
        ],
        "outputs": ["b/*.csv", "a.txt", "a.txt"],
    }
    spec = spec_of({"script": "true", "artifacts": artifacts})
    assert spec.run.artifacts.outputs == ("a.txt", "b/*.csv")
    assert [file.path for file in spec.run.artifacts.inputs] == ["conf/a.json", "data", "one"]
    assert from_document(to_document(spec)) == spec
    assert "artifacts" not in to_document(spec_of({"script": "true"}))["run"]
