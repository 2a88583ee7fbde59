"""Job documents to try things on: those of the docs and the examples, and some with every key there is."""

from __future__ import annotations

import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import yaml

_ROOT = Path(__file__).parents[2]
_BLOCK = re.compile(r"^```yaml\n(.*?)^```", re.MULTILINE | re.DOTALL)

_PROBE = {"command": ["true"], "interval": "5s", "timeout": "1s", "failure_threshold": 2}
FULL: tuple[dict[str, Any], ...] = (
    {
        "kind": "job",
        "namespace": "default",
        "name": "full",
        "labels": {"team": "data"},
        "run": {
            "command": ["echo", 5, "{{ params.who }}"],
            "env": {"WHO": "x", "TOKEN": {"secret": "token", "prefix": "Bearer "}},
            "user": "reports",
            "artifacts": {
                "inputs": [
                    {"path": "a", "content": "b"},
                    {"path": "c", "from": {"job": "other", "path": "d"}},
                ],
                "outputs": ["*.csv"],
            },
        },
        "params": {"who": "world"},
        "params_schema": None,
        "priority": 7,
        "timeout": "10m",
        "deadline": "2h",
        "retry": {
            "max_attempts": 3,
            "backoff": "linear",
            "delay": "10s",
            "max_delay": "5m",
            "jitter": False,
            "on": ["failed", "lost"],
            "rules": [
                {"when": {"exit_code": [75]}, "then": {"retry": False}},
                {"when": {"signal": "KILL", "oom": True}, "then": {"memory": "x2", "labels": {"big": "1"}}},
                {"when": {"output": "busy"}, "then": {"delay": "1s", "backoff": "fixed", "jitter": True}},
            ],
        },
        "concurrency": {"max": 2, "key": "{{ params.who }}"},
        "limits": ["tool:claude"],
        "placement": {
            "labels": {"zone": "eu"},
            "affinity": {
                "required": [{"key": "gpu", "operator": "Exists"}],
                "preferred": [{"weight": 5, "key": "ram", "operator": "Gt", "values": ["64"]}],
            },
            "anti_affinity": {
                "required": [{"jobs": ["other"]}],
                "preferred": [{"weight": 1, "labels": {"a": "b"}}],
            },
            "tolerations": [{"key": "spot", "operator": "Equal", "value": "yes", "effect": "NoSchedule"}],
            "resources": {"cpu": 1.5, "memory": "512Mi", "gpu": 0},
            "pool": "heavy",
        },
        "kill_grace": "5s",
        "on_lost": "continue",
        "lease": "1m",
        "skip_exit_codes": [75],
        "schedules": [
            {
                "name": "nightly",
                "enabled": False,
                "cron": "0 2 * * *",
                "timezone": "Europe/Berlin",
                "dst": {"gap": "shift", "fold": "first"},
                "start_at": "2026-01-01T00:00:00Z",
                "end_at": "2027-01-01T00:00:00Z",
                "max_count": 100,
                "jitter": "30s",
                "calendar": {"exclude": ["holidays"], "include": "workdays"},
                "blackout": [
                    {"from": "22:00", "to": "24:00", "weekdays": ["mon", "Friday"]},
                    {"from": "2026-12-24T00:00:00Z", "to": "2026-12-27T00:00:00Z"},
                ],
                "misfire": "all(5)",
                "misfire_grace": "60s",
                "overlap": "skip",
                "params": {"who": "night"},
                "priority": 1,
            },
            {"name": "often", "every": "5m"},
            {"name": "once", "at": "2026-12-31T23:59:00+01:00"},
            {
                "name": "upload",
                "event": {"name": "file.uploaded", "filter": "payload.size > 1", "params": {}},
            },
            {
                "name": "join",
                "event": {"all_of": [{"name": "a"}, {"name": "b"}], "within": "1h", "key": "payload.id"},
            },
            {"name": "calm", "event": {"name": "a.*", "debounce": {"quiet": "30s", "at_most": "5m"}}},
            {"name": "some", "event": {"name": "a", "throttle": {"max": 2, "per": "1m"}}},
            {"name": "none", "event": {"absence": {"name": "beat", "within": "5m"}}},
            {"name": "after", "flow": {"after": ["etl"], "on": "succeeded"}},
        ],
    },
    {
        "kind": "job",
        "name": "kept",
        "run": {"script": "serve", "shell": "sh", "workdir": "/srv"},
        "schedules": [
            {
                "name": "up",
                "daemon": {
                    "replicas": 2,
                    "restart": "always",
                    "backoff": {"delay": "1s", "max_delay": "1m", "jitter": True},
                    "stable_after": "10s",
                    "max_unavailable": "25%",
                    "liveness": {**_PROBE, "success_threshold": 1, "initial_delay": "3s"},
                    "readiness": {"http": {"url": "http://127.0.0.1:80/"}},
                },
            },
            {
                "name": "everywhere",
                "daemon": {"per_agent": True, "liveness": {"tcp": {"port": 1, "host": "x"}}},
            },
        ],
    },
    {
        "kind": "job",
        "name": "py",
        "run": {"python": {"function": "a.b:c", "kwargs": {"x": 1}}, "secrets": ["k"]},
    },
    {"kind": "job", "name": "spark", "run": {"executor": "spark", "with": {"jar": "x"}, "secrets": ["k"]}},
    {
        "kind": "job",
        "name": "call",
        "run": {
            "http": {
                "url": "https://example.org/",
                "method": "POST",
                "headers": {"X-A": "b", "Authorization": {"secret": "t"}},
                "json": {"a": 1},
                "expected_status": ["2xx", 404],
                "redirects": 0,
            }
        },
    },
    {
        "kind": "job",
        "name": "etl",
        "flow": {
            "nodes": [
                {"name": "a", "run": {"command": ["true"]}, "timeout": "5m", "retry": {"max_attempts": 2}},
                {"name": "b", "needs": ["a"], "job": "full", "map": "{{ nodes.a.output.files }}"},
                {
                    "name": "c",
                    "needs": ["b"],
                    "job": "py",
                    "map": {"over": [1, 2], "max_parallel": 1, "quorum": "50%"},
                    "params": {"x": "{{ item }}"},
                    "deadline": "1h",
                    "priority": 1,
                },
                {
                    "name": "d",
                    "needs": ["c"],
                    "approval": {"approvers": ["role:admin"], "timeout": "1d", "message": "?"},
                },
                {"name": "e", "needs": ["d"], "when": "nodes.b.succeeded >= 1", "wait_until": "10m"},
                {
                    "name": "f",
                    "needs": ["e"],
                    "wait_for_event": {"name": "go", "filter": "payload.a == 1", "timeout": "1h"},
                },
                {
                    "name": "g",
                    "needs": ["f"],
                    "trigger": "all_done",
                    "on_failure": "continue",
                    "run": {"script": "x"},
                    "fleet": {"waves": [1, "25%"], "max_unavailable": 1, "quorum": "90%"},
                },
                {"name": "h", "needs": ["g"], "flow": "other"},
            ],
            "on_failure": "continue",
        },
    },
    {"kind": "namespace", "name": "prod", "weight": 50, "labels": {"a": "b"}},
    {"kind": "limit", "namespace": "prod", "name": "tool:claude", "max": 3},
    {
        "kind": "calendar",
        "name": "off",
        "labels": {"a": "b"},
        "holidays": "DE",
        "dates": ["2026-12-24/2026-12-31"],
        "weekdays": ["sat"],
        "calendars": ["other"],
        "except": ["2026-12-30"],
    },
    {"kind": "secret", "name": "a", "value": "hunter22"},
    {"kind": "secret", "name": "a", "from": {"env": "B"}},
    {"kind": "secret", "name": "a", "from": {"stdin": True}},
    {
        "kind": "webhook",
        "name": "a",
        "url": "https://x.org/",
        "events": ["failed"],
        "jobs": ["b"],
        "secret": "s",
    },
    {"kind": "webhook", "name": "a", "receives": {"event": "a.b"}, "secret": "s", "enabled": False},
)


@cache
def written_documents() -> list[dict[str, Any]]:
    """Every whole document of the docs and the examples, as YAML reads it."""
    return list(_written())


def _written() -> Iterator[dict[str, Any]]:
    texts = [path.read_text(encoding="utf-8") for path in sorted((_ROOT / "examples").glob("*.yaml"))]
    pages = [_ROOT / "README.md", *sorted((_ROOT / "docs").rglob("*.md"))]
    texts += [block for page in pages for block in _BLOCK.findall(page.read_text(encoding="utf-8"))]
    for text in texts:
        for document in yaml.load_all(text, Loader=yaml.BaseLoader):
            if isinstance(document, dict) and "kind" in document:
                yield from yaml.safe_load_all(yaml.safe_dump(_typed(document)))


def _typed(value: Any) -> Any:
    """Scalars as a job file has them: dates stay texts."""
    if isinstance(value, dict):
        return {key: _typed(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_typed(item) for item in value]
    plain = {"true": True, "false": False, "null": None, "": None}
    if value in plain:
        return plain[value]
    return int(value) if re.fullmatch(r"0|[1-9][0-9]*", value) else value
