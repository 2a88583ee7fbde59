"""Examples of everything that is asked and answered, in one place.

What is asked is written here, call by call; tests send each of them to a real server. What is answered is
made from the types that answer, with the values below for the fields that have a name everybody knows; so a
new field has an example, and none can be of a wrong type.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime
from types import MappingProxyType
from typing import Any, Final

from msgspec import inspect

_ID: Final = "01890f3e-7b3c-7cc0-98c4-dc0c0c07398f"
_AT: Final = datetime(2026, 7, 1, 2, tzinfo=UTC)
_JOB: Final = {"name": "nightly-report", "run": {"command": ["./report.sh"]}, "params": {"day": "sunday"}}

# {operation: the body of a request}
REQUESTS: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "login": {"name": "ada", "password": "correct horse battery staple"},
        "refresh": {"refresh_token": "hr_3b1f…"},
        "change_own_password": {"current_password": "correct horse", "password": "battery staple 42"},
        "exchange_oidc_code": {"code": "3b1f9c", "verifier": "dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"},
        "create_user": {"name": "grace", "password": "correct horse battery", "role": "viewer"},
        "change_user": {"display_name": "Grace Hopper"},
        "set_user_password": {"password": "battery staple correct"},
        "grant_role": {"role": "editor", "namespace": "default"},
        "revoke_role": {"namespace": "default"},
        "create_api_key": {"name": "ci", "role": "operator", "namespace": "default", "expires_in": "90d"},
        "rotate_api_key": {"grace": "1h"},
        "create_agent_token": {"name": "eu-hosts", "namespaces": ["default"]},
        "apply": {"documents": [{"kind": "job", **_JOB}]},
        "create_job": _JOB,
        "change_job": {"params": {"day": "monday"}, "timeout": "10m"},
        "run_job": {"params": {"day": "sunday"}, "priority": 700},
        "run_job_many": {"runs": [{"params": {"day": "sunday"}}, {"params": {"day": "monday"}}]},
        "set_task_priority": {"priority": 900},
        "cancel_tasks": {"filter": {"namespace": "default", "job": "nightly-report"}, "dry_run": True},
        "retry_tasks": {"filter": {"namespace": "default", "status": "failed"}, "dry_run": True},
        "enable_jobs": {"filter": {"namespace": "default", "name": "nightly-report"}, "dry_run": True},
        "disable_jobs": {"filter": {"namespace": "default", "name": "nightly-report"}, "dry_run": True},
        "enable_schedules": {"filter": {"namespace": "default", "job": "nightly-report"}, "dry_run": True},
        "disable_schedules": {"filter": {"namespace": "default", "job": "nightly-report"}, "dry_run": True},
        "retry_flow_run": {"whole": True},
        "approve_flow_node": {"comment": "The numbers are right."},
        "reject_flow_node": {"comment": "The numbers are wrong."},
        "skip_flow_node": {"comment": "Not needed today."},
        "mark_flow_node": {"comment": "Done by hand."},
        "create_limit": {"name": "tool:claude", "max": 3},
        "change_limit": {"max": 5},
        "create_secret": {"name": "db-password", "value": "hunter22"},
        "set_secret": {"value": "hunter22"},
        "rotate_secret": {"value": "hunter23"},
        "kick_agent": {"lose_running": False},
        "shutdown_agent": {"now": False},
        "configure_agent": {"slots": 8, "labels": {"zone": "eu"}, "log_level": "info"},
        "create_calendar": {"name": "weekends", "weekdays": ["sat", "sun"]},
        "change_calendar": {"weekdays": ["fri", "sat"]},
        "add_schedule": {"job_id": _ID, "spec": {"name": "nightly", "cron": "0 2 * * *"}},
        "change_schedule": {"jitter": "30s"},
        "backfill_schedule": {
            "from": "2026-06-01T00:00:00Z",
            "to": "2026-06-02T00:00:00Z",
            "max_parallel": 2,
            "dry_run": True,
        },
        "create_namespace": {"name": "analytics", "weight": 100, "lease": "10m"},
        "change_namespace": {"weight": 200, "lease": None},
        "bind_namespace": {"pinned": False},
        "emit_event": {"name": "file.uploaded", "payload": {"path": "a.csv", "size": 1024}, "key": "a.csv"},
        "scale_daemon": {"replicas": 2},
        "restart_daemon": {"slot": 0},
        "set_webhook": {"url": "https://hooks.example.com/ended", "secret": "hook-key", "events": ["failed"]},
        "receive_webhook": {"path": "a.csv", "size": 1024},
    }
)

# {the name of a field: what stands in it}; what is not here is made up from its type.
_VALUES: Final[Mapping[str, Any]] = MappingProxyType(
    {
        "namespace": "default",
        "namespaces": ["default"],
        "job": "nightly-report",
        "schedule": "nightly",
        "user": "ada",
        "created_by": "ada",
        "updated_by": "ada",
        "agent": "worker-1",
        "hostname": "host-1",
        "url": "https://hetuflow.example.com",
        "version": "1.0.0",
        "schema_revision": "0018",
        "labels": {"team": "data"},
        "params": {"day": "sunday"},
        "spec": _JOB,
        "priority": 500,
        "attempt": 1,
        "attempts": 1,
        "exit_code": 0,
        "signal": None,
        "reason": None,
        "message": None,
        "status": "succeeded",
        "state": "valid",
        "kind": "cron",
        "role": "operator",
        "prefix": "3b1f9c0a",
        "key": "hk_3b1f9c0a_…",
        "token": "ha_3b1f9c0a_…",
        "access_token": "eyJhbGciOiJIUzI1NiJ9…",
        "refresh_token": "hr_3b1f…",
        "next_cursor": None,
        "total": 1,
        "total_capped": False,
        "timezone": "Europe/Berlin",
        "payload": {"path": "a.csv"},
        "permissions": ["tasks.read", "tasks.run"],
        "taints": ["spot=yes:NoSchedule"],
        "executors": ["command", "http", "python"],
        "actor": "ada",
        "actor_kind": "user",
        "action": "run_job",
        "outcome": "done",
        "code": "claimable",
        "summary": "Nothing stands in the way: the next poll of worker-1 may take it.",
        "path": "report.csv",
        "sha256": "2cf24dba5fb0a30e26e83b2ac5b9e29e1b161e5c1fa7425e73043362938b9824",
    }
)

_AGENT: Final = {"name": "worker-1", "status": "online", "reachable": True, "slots": 8}
# {a type that answers: what stands in its fields}, where that is not the same everywhere.
_OF_STRUCTS: Final[Mapping[str, Mapping[str, Any]]] = MappingProxyType(
    {
        "Agent": _AGENT,
        "AgentDetail": _AGENT,
        "AgentSummary": _AGENT,
        "AgentCommand": {"kind": "drain", "state": "succeeded"},
        "ApplyResult": {"dry_run": True},
        "AppliedDocument": {"kind": "job", "name": "nightly-report", "action": "created"},
        "Backfill": {"state": "running"},
        "Calendar": {"name": "weekends", "spec": {"weekdays": ["sat", "sun"]}},
        "Daemon": {"name": "keep-alive", "state": "ready"},
        "DaemonDetail": {"name": "keep-alive", "state": "ready"},
        "DaemonSlot": {"state": "ready"},
        "Event": {"name": "file.uploaded", "key": "a.csv", "source": "api"},
        "EventDetail": {"name": "file.uploaded", "key": "a.csv", "source": "api"},
        "FlowRun": {"status": "running"},
        "FlowRunDetail": {"status": "running"},
        "FlowRunNode": {"name": "extract", "does": "run", "needs": [], "trigger": "all_succeeded"},
        "Job": {"name": "nightly-report", "version": 2},
        "Limit": {"name": "tool:claude", "max": 3},
        "Me": {"kind": "user", "name": "ada"},
        "Namespace": {"name": "default", "weight": 100, "lease": "10m"},
        "Schedule": {"name": "nightly", "spec": {"name": "nightly", "cron": "0 2 * * *"}},
        "Secret": {"name": "db-password"},
        "Server": {"status": "live"},
        "User": {"name": "ada", "display_name": "Ada Lovelace"},
        "Webhook": {"name": "ended", "secret": "hook-key", "events": ["failed"], "receives": None},
        "WebhookDelivery": {"webhook": "ended", "event": "failed", "state": "waiting"},
    }
)


def answer(expected: Any) -> Any:
    """Return an example of what a route answers with, as JSON."""
    return _made(inspect.type_info(expected), "")


def _made(kind: inspect.Type, field: str) -> Any:  # noqa: PLR0911 - one for each kind of type
    if field in _VALUES and _fits(_VALUES[field], kind):
        return _VALUES[field]
    match kind:
        case inspect.StructType(cls=cls, fields=fields):
            own = _OF_STRUCTS.get(cls.__name__, {})
            return {
                one.encode_name: own.get(one.encode_name, _made(one.type, one.encode_name)) for one in fields
            }
        case inspect.UnionType(types=types):
            return _made(next(one for one in types if not isinstance(one, inspect.NoneType)), field)
        case inspect.ListType(item_type=item):
            return [_made(item, field.rstrip("s"))]
        case inspect.DictType():
            return {}
        case inspect.EnumType(cls=cls):
            return next(iter(cls)).value
        case inspect.StrType():
            return field or "text"
        case _:
            return _SCALARS.get(type(kind))


_SCALARS: Final[Mapping[type, Any]] = MappingProxyType(
    {
        inspect.UUIDType: _ID,
        inspect.DateTimeType: _AT.isoformat().replace("+00:00", "Z"),
        inspect.DateType: _AT.date().isoformat(),
        inspect.BoolType: False,
        inspect.IntType: 1,
        inspect.FloatType: 0.5,
    }
)


def _fits(value: Any, kind: inspect.Type) -> bool:
    """Whether a value is of a type: a field of a known name may be something else somewhere."""
    match kind:
        case inspect.UnionType(types=types):
            return any(_fits(value, one) for one in types)
        case inspect.EnumType(cls=cls):
            return value in [one.value for one in cls]
        case inspect.AnyType():
            return True
        case inspect.ListType(item_type=inspect.StrType()):
            return isinstance(value, list)
        case inspect.DictType():
            return isinstance(value, dict)
        case _:
            expected = _PLAIN.get(type(kind))
            return expected is not None and type(value) is expected


_PLAIN: Final[Mapping[type, type]] = {
    inspect.StrType: str,
    inspect.IntType: int,
    inspect.BoolType: bool,
    inspect.NoneType: type(None),
}
