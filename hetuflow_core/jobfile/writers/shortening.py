"""Documents as people would write them: without what is so anyway."""

from __future__ import annotations

from functools import cache
from typing import Any, Final

from hetuflow_core.errors import Invalid
from hetuflow_core.fields import shape_of
from hetuflow_core.jobfile.documents import JobSpec
from hetuflow_core.jobfile.loading import load_documents
from hetuflow_core.jobfile.parsing import raw_document
from hetuflow_core.jobfile.readers.flows import BODIES
from hetuflow_core.jobfile.run import Executor
from hetuflow_core.jobfile.writers.canonical import to_document
from hetuflow_core.schedule.spec import TRIGGERS

# What cannot be left out, and the least that can be said of it.
_RUNS: Final[dict[str, dict[str, Any]]] = {
    Executor.COMMAND: {"command": ["true"]},
    Executor.SCRIPT: {"script": "true"},
    Executor.PYTHON: {"python": {"function": "a:a"}},
    Executor.HTTP: {"http": {"url": "http://a"}},
    Executor.OTHER: {"executor": "a"},
}
_TRIGGERS: Final[dict[str, Any]] = {
    "cron": "* * * * *",
    "every": "1m",
    "at": "2030-01-01T00:00:00Z",
    "daemon": {},
    "event": {"name": "a"},
    "flow": {"after": ["a"]},
}
_BODIES: Final[dict[str, Any]] = {
    "job": "a",
    "flow": "a",
    "approval": {},
    "wait_for_event": {"name": "a"},
    "wait_until": "1m",
}
_KEPT: Final = frozenset({"kind", "name"})


def shortened_document(document: dict[str, Any]) -> dict[str, Any]:
    """Return what `to_document` gave without its defaults; it reads as the same."""
    (spec,) = load_documents([raw_document(document)])
    whole = to_document(spec)  # in the order people write things in, which a database does not keep
    short = _shortened(whole) if isinstance(spec, JobSpec) else shape_of(type(spec)).write_short(spec)
    try:
        same = load_documents([raw_document(short)]) == [spec]
    except Invalid:
        same = False
    # A default may depend on another key; then all of it is said.
    return short if same else whole


def _shortened(document: dict[str, Any]) -> dict[str, Any]:
    run, flow = document.get("run"), document.get("flow")
    executor = next((key for key in _RUNS if key in run), None) if run is not None else None
    short = _without(document, _job_defaults(executor))
    if flow is not None:
        nodes = [_without(node, _node_defaults(_body(node))) for node in flow["nodes"]]
        short["flow"] = {
            "nodes": nodes,
            **_without({"on_failure": flow["on_failure"]}, {"on_failure": "abort"}),
        }
    if document.get("schedules"):
        short["schedules"] = [
            _without(one, _schedule_defaults(next(key for key in TRIGGERS if key in one)))
            for one in document["schedules"]
        ]
    else:
        short.pop("schedules", None)
    return short


def _without(said: dict[str, Any], defaults: dict[str, Any]) -> dict[str, Any]:
    short = {}
    for key, value in said.items():
        default = defaults.get(key)
        if key not in _KEPT and (value is None or (key in defaults and value == default)):
            continue
        if isinstance(value, dict) and isinstance(default, dict) and default:
            short[key] = _without(value, default)
        else:
            short[key] = value
    return short


@cache
def _job_defaults(executor: str | None) -> dict[str, Any]:
    body = {"run": _RUNS[executor]} if executor is not None else {"flow": {"nodes": [_node("job")]}}
    defaults = _canonical({"kind": "job", "name": "a", **body})
    if executor is not None:
        return {**defaults, "run": _optional(defaults["run"], executor)}
    return {key: value for key, value in defaults.items() if key != "flow"}


@cache
def _schedule_defaults(trigger: str) -> dict[str, Any]:
    schedule = {"name": "a", trigger: _TRIGGERS[trigger]}
    job = {"kind": "job", "name": "a", "run": _RUNS[Executor.COMMAND], "schedules": [schedule]}
    (defaults,) = _canonical(job)["schedules"]
    return {key: value for key, value in defaults.items() if key != trigger or trigger == "daemon"}


@cache
def _node_defaults(body: str) -> dict[str, Any]:
    job = {"kind": "job", "name": "a", "flow": {"nodes": [_node(body)]}}
    (defaults,) = _canonical(job)["flow"]["nodes"]
    kind, _, executor = body.partition(" ")
    if executor:
        return {**defaults, "run": _optional(defaults["run"], executor)}
    return {key: value for key, value in defaults.items() if key != kind}


def _node(body: str) -> dict[str, Any]:
    kind, _, executor = body.partition(" ")
    return {"name": "a", kind: _RUNS[executor] if executor else _BODIES[kind]}


def _body(node: dict[str, Any]) -> str:
    kind = next(key for key in BODIES if node.get(key) is not None)
    return f"run {next(key for key in _RUNS if key in node['run'])}" if kind == "run" else kind


def _canonical(document: dict[str, Any]) -> dict[str, Any]:
    (spec,) = load_documents([raw_document(document)])
    return to_document(spec)


def _optional(run: dict[str, Any], executor: str) -> dict[str, Any]:
    """The defaults of a run without what no run can leave out."""
    said = run[executor]
    if not isinstance(said, dict):
        return {key: value for key, value in run.items() if key != executor}
    mandatory = _RUNS[executor][executor]
    return {**run, executor: {key: value for key, value in said.items() if key not in mandatory}}
