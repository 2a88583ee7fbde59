"""A job's `run`: what is executed, by which executor, with what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlsplit

import msgspec

from hetuflow_core.fields import (
    NAME,
    AtMostOne,
    Check,
    Form,
    Key,
    OneOf,
    OnlyWith,
    Section,
    ValueReader,
    Without,
    Written,
    distinct,
    entries,
    json_schema,
    matching,
    section,
    several,
    shape_of,
    text_unless,
    whole,
)
from hetuflow_core.jobfile.artifacts import ArtifactSpec
from hetuflow_core.jobfile.secrets import SecretUse
from hetuflow_core.templates.forms import TEMPLATE, TEMPLATE_OBJECT, TEMPLATE_VALUE

DEFAULT_SHELL: Final = "bash"
VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
# The agent sets these; a value from the file would be lost without a word.
AGENT_VARIABLES: Final = frozenset(
    {
        *("HETUFLOW_TASK_ID", "HETUFLOW_INSTANCE_ID", "HETUFLOW_ATTEMPT", "HETUFLOW_SCHEDULED_AT"),
        *("HETUFLOW_NAMESPACE", "HETUFLOW_JOB", "HETUFLOW_OUTPUT", "HETUFLOW_PROGRESS"),
        *("HETUFLOW_SHARD_INDEX", "HETUFLOW_SHARD_TOTAL", "HETUFLOW_SLOT"),
        *("HETUFLOW_SECRETS", "TRACEPARENT"),
    }
)
_HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
# What the connection itself says; a second one would contradict it.
_CONNECTION_HEADERS: Final = frozenset(
    {"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"}
)
_MOST_REDIRECTS: Final = 10
_PROCESS_KEYS: Final = ("env", "workdir", "user", "artifacts")


class Executor(StrEnum):
    """The keys of `run`, one of which says what is run."""

    COMMAND = "command"
    SCRIPT = "script"
    PYTHON = "python"
    HTTP = "http"
    # Any other, by its name; what it is told is under `with`.
    OTHER = "executor"


def _read_text_or_secret(given: ValueReader) -> str | SecretUse | None:
    if isinstance(given.node.value, Mapping):
        return shape_of(SecretUse).read(given)
    return TEMPLATE.read(given)


_SECRET: Final = section(SecretUse)
_TEXT_OR_SECRET: Final[Form[str | SecretUse]] = Form(
    _read_text_or_secret,
    lambda: {"anyOf": [TEMPLATE.json_schema(), _SECRET.json_schema()]},
    lambda value: value if isinstance(value, str) else _SECRET.write(value),
    summary="template or secret",
    structs=(SecretUse,),
)


def _variable_fault(name: str) -> str | None:
    if not VARIABLE.fullmatch(name):
        return "a variable's name has letters, digits and _, and no digit first: rename it."
    return f"{name} is set by the agent: use another name." if name in AGENT_VARIABLES else None


def _header_fault(name: str) -> str | None:
    if not _HEADER.fullmatch(name):
        return "is not the name of a header: use letters, digits and -."
    if name.lower() in _CONNECTION_HEADERS:
        return f"{name} is set by the connection itself: remove it."
    return None


def _url_fault(text: str) -> str | None:
    if text.startswith("{{"):
        return None
    if not text.lower().startswith(("http://", "https://")):
        return "must begin with http:// or https://."
    if "@" in urlsplit(text.partition("{{")[0]).netloc:
        return "holds a user or password: put them into headers instead."
    return None


def _workdir_fault(text: str) -> str | None:
    if not text.startswith("/"):
        return "must be an absolute path, or null for a fresh directory per instance."
    return "is not a template: write the path itself." if "{{" in text else None


def _read_command(given: ValueReader) -> tuple[str, ...] | None:
    if isinstance(given.node.value, str):
        given.refuse("must be a list of arguments, such as [echo, hello]: for a line of shell use script.")
        return None
    words = _ARGUMENTS.read(given)
    if words and not words[0]:
        given.refuse("the program's name is empty: name the program to run.")
    return words or None


def _read_executor(given: ValueReader) -> str | None:
    name = _EXECUTOR.read(given)
    if name in tuple(Executor):
        given.refuse(f"{name} has a key of its own: write run: {{{name}: …}}.")
        return None
    return name


_ARGUMENTS: Final = several(TEMPLATE, tuple, least=1, too_few="the list is empty: name the program to run.")
_EXECUTOR: Final = matching(
    re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?"), "the name of an executor that agents have"
)
_OTHER_EXECUTOR: Final = Form(
    _read_executor,
    {"allOf": [_EXECUTOR.json_schema(), {"not": json_schema.choice(Executor)}]},
    summary="name of an executor",
)
_SCRIPT: Final = text_unless(
    lambda text: None if text.strip() else "the script is empty: write what to run.",
    {"type": "string", "pattern": r"\S"},
)
_SHELL: Final = matching(
    re.compile(r"/?[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*"), "a shell such as bash or sh", summary="program"
)
_ENVIRONMENT: Final = entries(
    _TEXT_OR_SECRET,
    _variable_fault,
    {"pattern": f"^(?:{VARIABLE.pattern})$", "not": json_schema.choice(sorted(AGENT_VARIABLES))},
    summary="mapping of names to templates or secrets",
)
_HEADERS: Final = entries(
    _TEXT_OR_SECRET,
    _header_fault,
    {"pattern": f"^(?:{_HEADER.pattern})$"},
    summary="mapping of names to templates or secrets",
)
_WORKDIR: Final = text_unless(
    _workdir_fault,
    {"type": "string", "pattern": "^/", "not": {"pattern": r"\{\{"}},
    summary="absolute path",
)


def _pattern(pattern: str, expected: str, summary: str) -> Form[str]:
    """Text of this form; numbers never have it."""
    compiled = re.compile(pattern, re.ASCII)
    return matching(compiled, expected, schema=json_schema.matching(compiled), summary=summary)


_STATUS: Final = re.compile(r"[1-5](xx|[0-9]{2})")
_EXPECTED_STATUS: Final = several(
    matching(
        _STATUS,
        "a status such as 200, or a class such as 2xx",
        schema={
            "anyOf": [
                {"type": "string", "pattern": f"^(?:{_STATUS.pattern})$"},
                {"type": "integer", "minimum": 100, "maximum": 599},
            ]
        },
        summary="status or class, such as 200 or `2xx`",
    ),
    distinct,
    alone=object,
    empty=False,
)


class HttpCall(msgspec.Struct, frozen=True, kw_only=True):
    """One request. `url`, values of `headers`, `body` and all texts in `json` are templates."""

    RULES: ClassVar = (AtMostOne(("body", "json")),)

    url: Annotated[
        str,
        text_unless(
            _url_fault,
            {"type": "string", "pattern": r"^(\{\{|[hH][tT][tT][pP][sS]?://)"},
            read=TEMPLATE.read,
            summary="address of http or https, a template",
        ),
        Key("Address of the request.", missing="say what to request"),
    ]
    method: Annotated[
        str, _pattern("[A-Z]{1,32}", "a method such as GET or POST", "method"), Key("Method of the request.")
    ] = "GET"
    headers: Annotated[dict[str, str | SecretUse], _HEADERS, Key("Headers of the request.")] = {}
    body: Annotated[str | None, TEMPLATE, Key("Body of the request.", written=Written.SET)] = None
    json: Annotated[Any, TEMPLATE_VALUE, Key("Body of the request, sent as JSON.", written=Written.SET)] = (
        None
    )
    expected_status: Annotated[
        tuple[str, ...], _EXPECTED_STATUS, Key("Statuses of the response that mean success.")
    ] = ("2xx",)
    redirects: Annotated[int, whole(0, _MOST_REDIRECTS), Key("Most redirects that are followed.")] = 5

    @property
    def plain_headers(self) -> dict[str, str]:
        return {name: text for name, text in self.headers.items() if isinstance(text, str)}

    @property
    def secret_headers(self) -> dict[str, SecretUse]:
        return {name: use for name, use in self.headers.items() if isinstance(use, SecretUse)}


class PythonCall(msgspec.Struct, frozen=True, kw_only=True):
    """A function of a module the agent lists; without `kwargs` it gets the task's params."""

    function: Annotated[
        str,
        _pattern(
            r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*",
            "a module and a function, such as acme.reports:nightly",
            "`module:function`",
        ),
        Key("Function to call.", missing="name the function as module:function"),
    ]
    kwargs: Annotated[
        dict[str, Any] | None,
        TEMPLATE_OBJECT,
        Key("Arguments of the function.", written=Written.SET, default_doc="the parameters of the task"),
    ] = None


class OtherCall(msgspec.Struct, frozen=True, kw_only=True):
    """What an executor of another package is told; only that package knows whether it makes sense."""

    executor: str
    options: dict[str, Any] = {}


def _default_shell(values: Mapping[str, Any]) -> str | None:
    return DEFAULT_SHELL if values.get("script") is not None else None


def _secrets_elsewhere(executor: str | None) -> str | None:
    """The other executors have places in which to name each secret."""
    if executor is None:
        return None
    place = "headers" if executor == Executor.HTTP else "env"
    return f"{executor} gets secrets by {place}: write {place}: {{NAME: {{secret: …}}}}."


def _refuse_files_of_users(_run: Run, at: Section) -> None:
    # The agent brings and takes files with its own rights, so not where the user decides what is a file.
    if all(map(at.says, ("user", "workdir", "artifacts"))):
        at.refuse("a user's task has files in its fresh directory only: remove workdir.", "artifacts")


_NO_PROCESS: Final = "{variant} starts no process of its own: remove it."


class Run(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly one executor is set; items of `command` and values of `env` are templates."""

    DEFINITION: ClassVar = "run"
    RULES: ClassVar = (
        OneOf(tuple(Executor), "nothing says what to run: use {keys}.", quiet=True),
        OnlyWith("shell", ("script",), "only a script has a shell: remove it, or use script."),
        OnlyWith("with", ("executor",), "goes with executor: name the executor it is for, or remove it."),
        OnlyWith("secrets", ("python", "executor"), _secrets_elsewhere),
        Without("http", _PROCESS_KEYS, _NO_PROCESS, empty=True),
        Without("python", _PROCESS_KEYS, _NO_PROCESS, empty=True),
        Check(_refuse_files_of_users),
    )

    command: Annotated[
        tuple[str, ...] | None,
        Form(_read_command, _ARGUMENTS.json_schema, list, summary=_ARGUMENTS.summary),
        Key("The program and its arguments."),
    ] = None
    script: Annotated[str | None, _SCRIPT, Key("Text for a shell; parameters reach it through env.")] = None
    python: Annotated[PythonCall | None, Key("A function, as module:name.")] = None
    http: Annotated[HttpCall | None, Key("An HTTP request that the agent sends.")] = None
    executor_name: Annotated[
        str | None, _OTHER_EXECUTOR, Key("An executor of another package, by its name.")
    ] = msgspec.field(name="executor", default=None)
    shell: Annotated[
        str | None,
        _SHELL,
        Key("The shell of `script`.", default=_default_shell, default_doc=f"`{DEFAULT_SHELL}`"),
    ] = None
    options: Annotated[dict[str, Any], TEMPLATE_OBJECT, Key("What `executor` is told.")] = msgspec.field(
        name="with", default_factory=dict
    )
    env: Annotated[
        dict[str, str | SecretUse], _ENVIRONMENT, Key("Environment variables of the process.")
    ] = {}
    secrets: Annotated[
        tuple[str, ...],
        several(NAME, distinct),
        Key("Secrets that the function or executor gets.", written=Written.SET),
    ] = ()
    workdir: Annotated[
        str | None,
        _WORKDIR,
        Key("Work directory of the process.", default_doc="a fresh directory per instance"),
    ] = None
    user: Annotated[
        str | None,
        _pattern("[A-Za-z_][A-Za-z0-9_.-]{0,31}", "the name of a user of the host", "name"),
        Key(
            "User of the host that runs the process.",
            written=Written.SET,
            default_doc="the user of the agent",
        ),
    ] = None
    artifacts: Annotated[ArtifactSpec, Key("Files that go with the task.", written=Written.SET)] = (
        ArtifactSpec()
    )

    @property
    def executor(self) -> Executor:
        if self.command is not None:
            return Executor.COMMAND
        if self.python is not None:
            return Executor.PYTHON
        if self.http is not None:
            return Executor.HTTP
        return Executor.SCRIPT if self.executor_name is None else Executor.OTHER

    @property
    def other(self) -> OtherCall | None:
        if self.executor_name is None:
            return None
        return OtherCall(executor=self.executor_name, options=self.options)

    @property
    def plain_env(self) -> dict[str, str]:
        return {name: text for name, text in self.env.items() if isinstance(text, str)}

    @property
    def secret_env(self) -> dict[str, SecretUse]:
        return {name: use for name, use in self.env.items() if isinstance(use, SecretUse)}

    @property
    def secret_names(self) -> frozenset[str]:
        """Every secret it is given, by any way."""
        headers = self.http.secret_headers if self.http is not None else {}
        uses = (*self.secret_env.values(), *headers.values())
        return frozenset(self.secrets) | {use.secret for use in uses}

    @property
    def required_executor(self) -> str | None:
        """The name of the executor an agent must have; None for what every agent has."""
        match self.executor:
            case Executor.COMMAND | Executor.SCRIPT:
                return None
            case Executor.OTHER:
                return self.executor_name
        return self.executor.value
