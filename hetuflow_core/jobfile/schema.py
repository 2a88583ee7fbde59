"""The JSON Schema of job files, for editors and programs that write them.

It follows from the definitions of the keys. Whether a cron expression or a template makes sense, only the
reader knows.
"""

from __future__ import annotations

from typing import Final

from hetuflow_core.fields import shape_of
from hetuflow_core.fields.json_schema import DEFINITIONS, REF, Schema, choice, described, several
from hetuflow_core.jobfile.documents import SPECS
from hetuflow_core.jobfile.jobs import JobSpec
from hetuflow_core.jobfile.kinds import Kind
from hetuflow_core.jobfile.run import Run
from hetuflow_core.placement import Requirements
from hetuflow_core.retry import RetryPolicy
from hetuflow_core.schedule import ScheduleSpec

DIALECT: Final = "https://json-schema.org/draft/2020-12/schema"


def document_schema(kind: Kind | None = None) -> Schema:
    """The schema of a document of this kind, or of any kind."""
    kinds = {one: shape_of(SPECS[one]).schema() for one in SPECS if kind in (None, one)}
    definitions = {
        **DEFINITIONS,
        **_definitions(),
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


def _definitions() -> dict[str, Schema]:
    """What jobs and nodes share."""
    keys = shape_of(JobSpec).keys
    shared = {
        struct.DEFINITION: described(shape_of(struct).schema(), keys[struct.DEFINITION].key.doc)
        for struct in (Run, RetryPolicy, Requirements)
    }
    return {**shared, ScheduleSpec.DEFINITION: shape_of(ScheduleSpec).schema()}
