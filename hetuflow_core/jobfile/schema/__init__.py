"""The JSON Schema of job files, for editors and programs that write them.

It is put together from the names, patterns and bounds of the readers. What a schema can say, it says as they
do; whether a cron expression or a template makes sense, only they know.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from hetuflow_core.fields import shape_of
from hetuflow_core.fields.json_schema import (
    DEFINITIONS,
    DURATION,
    EMPTY,
    OBJECT,
    TEMPLATE,
    TEXT,
    Schema,
    absent,
    at_most_one,
    choice,
    described,
    given,
    labels,
    mapping,
    matching,
    one_of,
    several,
    silent,
    when,
    whole,
)
from hetuflow_core.flow import OnFailure, TriggerRule
from hetuflow_core.jobfile.calendars import CalendarSpec
from hetuflow_core.jobfile.kinds import UNSUPPORTED_KINDS, Kind
from hetuflow_core.jobfile.limits import LimitSpec
from hetuflow_core.jobfile.namespaces import NamespaceSpec
from hetuflow_core.jobfile.readers import flows
from hetuflow_core.jobfile.readers.work import NODE_WORK_KEYS, WORK_KEYS
from hetuflow_core.jobfile.schema.triggers import schedule
from hetuflow_core.jobfile.schema.work import (
    NAME_TEXT,
    PRIORITY,
    REF,
    placement,
    retry,
    run,
    work_keys,
)
from hetuflow_core.jobfile.secrets import SecretSpec
from hetuflow_core.jobfile.webhooks import WebhookSpec
from hetuflow_core.limits import MOST_CONCURRENT

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def document_schema(kind: Kind | None = None) -> Schema:
    """The schema of a document of this kind, or of any kind."""
    kinds = {one: schema for one, schema in _kinds().items() if kind in (None, one)}
    definitions = {
        **DEFINITIONS,
        "run": run(),
        "retry": retry(),
        "placement": placement(),
        "schedule": schedule(),
        **{f"kind-{one.value}": schema for one, schema in kinds.items()},
    }
    title = "A document of a Hetuflow job file" if kind is None else f"A {kind.value} in a Hetuflow job file"
    cases = [
        {
            "if": {"properties": {"kind": {"const": one.value}}, "required": ["kind"]},
            "then": {"$ref": f"{REF}kind-{one.value}"},
        }
        for one in kinds
    ]
    return {
        "$schema": DIALECT,
        "title": title,
        "type": "object",
        "properties": {"kind": choice(list(kinds))},
        "required": ["kind"],
        "allOf": cases,
        "$defs": definitions,
    }


def file_schema() -> Schema:
    """The schema of a whole file: a document, or several in a list or under `documents`."""
    document = document_schema()
    definitions = document.pop("$defs")
    inner = {key: value for key, value in document.items() if not key.startswith("$") and key != "title"}
    one = {"$ref": f"{REF}document"}
    return {
        "$schema": DIALECT,
        "title": "A Hetuflow job file",
        "if": {"type": "array"},
        "then": several(one),
        "else": {
            "if": {"required": ["documents"], "maxProperties": 1},
            "then": {"type": "object", "properties": {"documents": several(one)}},
            "else": one,
        },
        "$defs": {**definitions, "document": inner},
    }


def _kinds() -> Mapping[Kind, Schema]:
    found = {
        Kind.JOB: _job(),
        Kind.NAMESPACE: shape_of(NamespaceSpec).schema(),
        Kind.CALENDAR: shape_of(CalendarSpec).schema(),
        Kind.LIMIT: shape_of(LimitSpec).schema(),
        Kind.SECRET: shape_of(SecretSpec).schema(),
        Kind.WEBHOOK: shape_of(WebhookSpec).schema(),
    }
    return {kind: found[kind] for kind in Kind if kind not in UNSUPPORTED_KINDS}


def _named(kind: Kind, keys: Mapping[str, Schema]) -> dict[str, Schema]:
    return {"kind": {"const": kind.value}, "namespace": NAME_TEXT, "name": NAME_TEXT, **keys}


def _job() -> Schema:
    keys = _named(
        Kind.JOB,
        {
            "labels": described(labels(), "Facts about the job."),
            "run": {"$ref": f"{REF}run"},
            "flow": _flow(),
            "params": described(OBJECT, "What a run gives goes on top of it, key by key."),
            "params_schema": EMPTY,
            "priority": PRIORITY,
            "deadline": described(DURATION, "How long the task may take with all its attempts."),
            "concurrency": described(
                mapping({"max": whole(1, MOST_CONCURRENT), "key": TEMPLATE}),
                "How many of its instances may be under way at once, or for each value of `key`.",
            ),
            "schedules": described(several({"$ref": f"{REF}schedule"}, most=1000), "When it runs by itself."),
            **work_keys(),
        },
    )
    rules = [one_of("run", "flow"), when(given("flow"), silent(NODE_WORK_KEYS))]
    return mapping(keys, required=["kind", "name"], rules=rules)


def _flow() -> Schema:
    keys = {
        "nodes": several(_node(), least=1),
        "on_failure": choice([one for one in OnFailure if one is not OnFailure.RETRY]),
    }
    return described(mapping(keys, required=["nodes"]), "A graph of nodes.")


def _node() -> Schema:
    share = {"anyOf": [whole(0, flows.MOST_ITEMS), {"type": "string", "pattern": "^([0-9]{1,2}|100)%$"}]}
    part = {"anyOf": [whole(1, flows.MOST_ITEMS), {"type": "string", "pattern": "^(0*[1-9][0-9]?|100)%$"}]}
    over = {
        "anyOf": [
            {"type": "array", "maxItems": flows.MOST_ITEMS},
            {"type": "string", "pattern": r"\{\{"},
        ]
    }
    several_at_once = mapping(
        {"over": over, "max_parallel": whole(1, flows.MOST_ITEMS), "quorum": share}, required=["over"]
    )
    approval = mapping(
        {
            "approvers": several(matching(flows.APPROVER, numbers=True)),
            "timeout": DURATION,
            "message": TEMPLATE,
        }
    )
    event = mapping({"name": TEXT, "filter": TEXT, "timeout": DURATION}, required=["name"])
    keys: dict[str, Schema] = {
        "name": matching(flows.NODE_NAME, numbers=True),
        "needs": several(NAME_TEXT),
        "when": TEXT,
        "trigger": choice(TriggerRule),
        "on_failure": choice(OnFailure),
        "run": {"$ref": f"{REF}run"},
        "job": NAME_TEXT,
        "flow": NAME_TEXT,
        "approval": approval,
        "wait_for_event": event,
        "wait_until": TEXT,
        "params": OBJECT,
        "map": {"anyOf": [over, several_at_once]},
        "fleet": mapping({"waves": several(part, most=100), "max_unavailable": part, "quorum": share}),
        "deadline": DURATION,
        "priority": PRIORITY,
        **work_keys(),
    }
    limited = ("map", "fleet", "params", "deadline", "priority", *WORK_KEYS)
    idle = [
        when(given(body), absent(*others))
        for body, allowed in flows.ALLOWED.items()
        if (others := [key for key in limited if key not in allowed])
    ]
    rules = [one_of(*flows.BODIES), at_most_one("map", "fleet"), *idle]
    return mapping(keys, required=["name"], rules=rules)
