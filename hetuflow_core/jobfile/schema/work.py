"""What is run and how: `run`, `retry`, `placement` and the other keys that jobs and nodes have."""

from __future__ import annotations

from typing import Final

from hetuflow_core.fields import shape_of
from hetuflow_core.fields.json_schema import (
    ANYTHING,
    DURATION,
    OBJECT,
    TEMPLATE,
    TEXT,
    Schema,
    at_most_one,
    choice,
    described,
    given,
    mapping,
    matching,
    one_of,
    one_or_more,
    only_with,
    several,
    silent,
    when,
    whole,
)
from hetuflow_core.fields.value_reader import LABEL_KEY
from hetuflow_core.jobfile.documents import Executor, OnLost
from hetuflow_core.jobfile.limits import SCOPE
from hetuflow_core.jobfile.readers import (
    run as reader_run,
)
from hetuflow_core.jobfile.readers.names import NAME
from hetuflow_core.placement import Requirements
from hetuflow_core.retry import RetryPolicy

REF: Final = "#/$defs/"
NAME_TEXT: Final = matching(NAME, numbers=True)


def names(*, least: int = 0, most: int | None = None) -> Schema:
    """A list of names, or one of them."""
    return one_or_more(NAME_TEXT, alone=matching(NAME), least=least, most=most)


PRIORITY: Final = described(whole(0, 1000), "Higher goes first among what is due.")
_LABEL: Final = matching(LABEL_KEY, numbers=True)
_PROCESS_KEYS: Final = ("env", "workdir", "user", "artifacts")


def scope() -> Schema:
    """The name of a limit."""
    return SCOPE.json_schema()


def run() -> Schema:
    values = {"anyOf": [TEMPLATE, _secret_use()]}
    keys: dict[str, Schema] = {
        "command": described(several(TEMPLATE, least=1), "The program and its arguments."),
        "script": described(
            {"type": "string", "pattern": r"\S"}, "Text for a shell; parameters reach it through env."
        ),
        "python": _python(),
        "http": _http(values),
        "executor": {
            "allOf": [
                matching(reader_run.EXECUTOR, numbers=True),
                {"not": choice(Executor)},
            ]
        },
        "shell": matching(reader_run.SHELL, numbers=True),
        "with": OBJECT,
        "env": {
            "type": "object",
            "propertyNames": {
                "pattern": f"^(?:{reader_run.VARIABLE.pattern})$",
                "not": choice(sorted(reader_run.AGENT_VARIABLES)),
            },
            "additionalProperties": values,
        },
        "secrets": several(NAME_TEXT),
        "workdir": {"type": "string", "pattern": "^/", "not": {"pattern": r"\{\{"}},
        "user": matching(reader_run.USER),
        "artifacts": _artifacts(),
    }
    rules = [
        one_of(*Executor),
        only_with("shell", "script"),
        only_with("with", "executor"),
        only_with("secrets", "python", "executor"),
        *(when(given(executor), silent(_PROCESS_KEYS)) for executor in ("http", "python")),
    ]
    return described(mapping(keys, rules=rules), "What to execute.")


def _secret_use() -> Schema:
    keys = {"secret": NAME_TEXT, "prefix": {"type": "string", "maxLength": 256}}
    return mapping(keys, required=["secret"])


def _python() -> Schema:
    keys = {"function": matching(reader_run.FUNCTION), "kwargs": OBJECT}
    return described(mapping(keys, required=["function"]), "A function, as module:name.")


def _http(values: Schema) -> Schema:
    status = {
        "anyOf": [
            {"type": "string", "pattern": f"^(?:{reader_run.STATUS.pattern})$"},
            {"type": "integer", "minimum": 100, "maximum": 599},
        ]
    }
    headers = {
        "type": "object",
        "propertyNames": {"pattern": f"^(?:{reader_run.HEADER.pattern})$"},
        "additionalProperties": values,
    }
    keys = {
        "url": {"type": "string", "pattern": r"^(\{\{|[hH][tT][tT][pP][sS]?://)"},
        "method": matching(reader_run.METHOD),
        "headers": headers,
        "body": TEMPLATE,
        "json": ANYTHING,
        "expected_status": one_or_more(status),
        "redirects": whole(0, 10),
    }
    return mapping(keys, required=["url"], rules=[at_most_one("body", "json")])


def _artifacts() -> Schema:
    origin = mapping(
        {"job": NAME_TEXT, "task": TEMPLATE, "path": TEXT}, required=["path"], rules=[one_of("job", "task")]
    )
    file = mapping(
        {"path": TEXT, "content": TEMPLATE, "from": origin},
        required=["path"],
        rules=[one_of("content", "from")],
    )
    return mapping({"inputs": several(file, most=100), "outputs": several(TEXT)})


def retry() -> Schema:
    return described(shape_of(RetryPolicy).schema(), "How often it is tried again, and when.")


def placement() -> Schema:
    return described(shape_of(Requirements).schema(), "Which agents may run it.")


def work_keys() -> dict[str, Schema]:
    """The keys of `work_reader.WORK_KEYS`."""
    return {
        "timeout": described(DURATION, "How long one attempt may take."),
        "limits": described(several(scope()), "Names of limits it shares with other jobs."),
        "retry": {"$ref": f"{REF}retry"},
        "placement": {"$ref": f"{REF}placement"},
        "kill_grace": described(DURATION, "Time between SIGTERM and SIGKILL for a task that is ended."),
        "on_lost": described(choice(OnLost), "What an agent without contact does with the work."),
        "lease": described(DURATION, "How long an agent that is not heard of keeps the work."),
        "skip_exit_codes": described(several(whole(1, 255)), "Exit codes that mean: nothing to do."),
    }
