"""The `daemon` of a schedule: what may be written, what it means, and every fault of it."""

from __future__ import annotations

from datetime import timedelta
from typing import Any

import pytest

from hetuflow_core.daemon import (
    DaemonSpec,
    HttpProbe,
    ProbeSpec,
    Restart,
    RestartBackoff,
    SlotShare,
    TcpProbe,
)
from hetuflow_core.errors import Invalid
from hetuflow_core.jobfile import (
    load_documents,
    parse_documents,
    raw_document,
    schedule_document,
    schedule_from_document,
)
from hetuflow_core.states import ScheduleKind

SECOND = timedelta(seconds=1)


def read(daemon: Any, **beside: Any) -> DaemonSpec:
    spec = schedule_from_document({"name": "up", "daemon": daemon, **beside})
    assert spec.kind is ScheduleKind.DAEMON
    assert not spec.timed
    assert schedule_from_document(schedule_document(spec)) == spec
    assert spec.daemon is not None
    return spec.daemon


def faults(daemon: Any, **beside: Any) -> dict[str, str]:
    with pytest.raises(Invalid) as refused:
        schedule_from_document({"name": "up", "daemon": daemon, **beside})
    return {fault.field: fault.message for fault in refused.value.faults}


def test_everything_that_can_be_said() -> None:
    found = read(
        {
            "replicas": 3,
            "restart": "on_failure",
            "backoff": {"delay": "2s", "max_delay": "1m", "jitter": False},
            "stable_after": "5m",
            "max_unavailable": "25%",
            "liveness": {"http": {"url": "http://127.0.0.1:8080/live"}, "interval": "5s", "timeout": "2s"},
            "readiness": {
                "tcp": {"port": 5432, "host": "db"},
                "failure_threshold": 2,
                "success_threshold": 4,
                "initial_delay": "1s",
            },
        }
    )
    assert found == DaemonSpec(
        replicas=3,
        restart=Restart.ON_FAILURE,
        backoff=RestartBackoff(delay=2 * SECOND, max_delay=60 * SECOND, jitter=False),
        stable_after=300 * SECOND,
        max_unavailable=SlotShare(number=25, percent=True),
        liveness=ProbeSpec(
            http=HttpProbe(url="http://127.0.0.1:8080/live"), interval=5 * SECOND, timeout=2 * SECOND
        ),
        readiness=ProbeSpec(
            tcp=TcpProbe(port=5432, host="db"),
            failure_threshold=2,
            success_threshold=4,
            initial_delay=SECOND,
        ),
    )


def test_little_is_enough() -> None:
    assert read({}) == DaemonSpec()
    assert read({"per_agent": True}) == DaemonSpec(per_agent=True)
    assert read({"replicas": 0}).replicas == 0
    assert read({"liveness": {"command": ["test", "-f", 1]}}).liveness == ProbeSpec(
        command=("test", "-f", "1")
    )


def test_a_long_delay_lifts_the_cap_nobody_set() -> None:
    assert read({"backoff": {"delay": "1h"}}).backoff.max_delay == timedelta(hours=1)


@pytest.mark.parametrize(
    ("daemon", "field", "words"),
    [
        ({"replicas": -1}, "daemon.replicas", "between 0 and 1000"),
        ({"replicas": "two"}, "daemon.replicas", "whole number"),
        ({"replicas": 2, "per_agent": True}, "daemon.replicas", "keep one of replicas and per_agent"),
        ({"restart": "allways"}, "daemon.restart", 'did you mean "always"?'),
        ({"backoff": {"delay": "1m", "max_delay": "1s"}}, "daemon.backoff.max_delay", "less than the delay"),
        ({"backoff": {"delay": "0s"}}, "daemon.backoff.delay", "between 100ms"),
        ({"max_unavailable": 0}, "daemon.max_unavailable", "between 1 and"),
        ({"max_unavailable": "0%"}, "daemon.max_unavailable", "nor a share"),
        ({"max_unavailable": "101%"}, "daemon.max_unavailable", "nor a share"),
        ({"livenes": {}}, "daemon.livenes", 'did you mean "liveness"?'),
        ({"liveness": {}}, "daemon.liveness", "asks nothing: use command, http or tcp"),
        ({"liveness": {"command": []}}, "daemon.liveness.command", "is not a command"),
        (
            {"liveness": {"command": ["true"], "tcp": {"port": 1}}},
            "daemon.liveness",
            "command and tcp exclude each other",
        ),
        ({"readiness": {"tcp": {"port": 70000}}}, "daemon.readiness.tcp.port", "between 1 and 65535"),
        ({"readiness": {"tcp": {}}}, "daemon.readiness.tcp", '"port" is missing'),
        (
            {"readiness": {"tcp": {"port": 1, "host": "a b"}}},
            "daemon.readiness.tcp.host",
            "not a name or address",
        ),
        (
            {"readiness": {"http": {"url": "ftp://x"}}},
            "daemon.readiness.http.url",
            "not an address of a web server",
        ),
        (
            {"readiness": {"http": {"url": "http://[x"}}},
            "daemon.readiness.http.url",
            "not an address of a web",
        ),
        ({"readiness": {"http": {}}}, "daemon.readiness.http", '"url" is missing'),
        (
            {"readiness": {"tcp": {"port": 1}, "interval": "1ms"}},
            "daemon.readiness.interval",
            "between 500ms and 1h",
        ),
        (
            {"readiness": {"tcp": {"port": 1}, "failure_threshold": 0}},
            "daemon.readiness.failure_threshold",
            "between 1 and 1000",
        ),
        ([], "daemon", "must be a mapping"),
    ],
)
def test_faults(daemon: Any, field: str, words: str) -> None:
    found = faults(daemon)
    assert list(found) == [field]
    assert words in found[field]


@pytest.mark.parametrize(
    "beside",
    [
        {"timezone": "Europe/Berlin"},
        {"jitter": "1s"},
        {"overlap": "skip"},
        {"misfire": "skip"},
        {"calendar": "closed"},
        {"start_at": "2026-01-01T00:00:00Z"},
        {"max_count": 3},
    ],
)
def test_keys_that_would_say_nothing_are_refused(beside: dict[str, Any]) -> None:
    (key,) = beside
    assert faults({}, **beside) == {key: f"a daemon runs all the time: remove {key}."}


def test_one_of_the_kinds() -> None:
    assert faults({}, cron="@daily") == {"": "cron and daemon exclude each other: keep one of them."}


def test_a_flow_is_no_daemon() -> None:
    flow = {"nodes": [{"name": "a", "run": {"command": ["true"]}}]}
    document = {"kind": "job", "name": "x", "flow": flow, "schedules": [{"name": "up", "daemon": {}}]}
    with pytest.raises(Invalid) as refused:
        load_documents([raw_document(document, "")])
    (fault,) = refused.value.faults
    assert fault.field == "schedules"
    assert "nothing can keep it running" in fault.message


def test_the_place_in_the_file_is_told() -> None:
    text = """
kind: job
name: web
run: {command: [serve]}
schedules:
  - name: up
    daemon:
      replicas: many
"""
    with pytest.raises(Invalid) as refused:
        load_documents(parse_documents(text, "yaml", "web.yaml"))
    (fault,) = refused.value.faults
    assert fault.field == "web.yaml:8:7 schedules[0].daemon.replicas"
