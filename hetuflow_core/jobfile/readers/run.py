"""A job's `run`: what is executed, by which executor, with what."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, Final, TypeAlias
from urllib.parse import urlsplit

from hetuflow_core.fields.nodes import plain
from hetuflow_core.fields.value_reader import SectionReader, ValueReader, each, listed
from hetuflow_core.jobfile.documents import (
    DEFAULT_EXPECTED_STATUS,
    DEFAULT_METHOD,
    DEFAULT_REDIRECTS,
    DEFAULT_SHELL,
    ArtifactSpec,
    Executor,
    HttpCall,
    OtherCall,
    PythonCall,
    Run,
)
from hetuflow_core.jobfile.readers.artifacts import read_artifacts
from hetuflow_core.jobfile.readers.secrets import is_secret_use, read_secret_names, read_secret_use
from hetuflow_core.jobfile.readers.templates import read_template
from hetuflow_core.jobfile.readers.unsupported import supported
from hetuflow_core.jobfile.secrets import SecretUse

RUN_KEYS: Final = (*Executor, "shell", "with", "env", "secrets", "workdir", "user", "artifacts")
HTTP_KEYS: Final = ("url", "method", "headers", "body", "json", "expected_status", "redirects")
PYTHON_KEYS: Final = ("function", "kwargs")

# Values that stand in the file, and those that secrets hold.
_Texts: TypeAlias = "tuple[dict[str, str], dict[str, SecretUse]]"

VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
SHELL: Final = re.compile(r"/?[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*")
EXECUTOR: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,62}[a-z0-9])?")
FUNCTION: Final = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*", re.ASCII)
USER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")
METHOD: Final = re.compile(r"[A-Z]{1,32}")
HEADER: Final = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,128}")
STATUS: Final = re.compile(r"[1-5](xx|[0-9]{2})")
# What the connection itself says; a second one would contradict it.
_CONNECTION_HEADERS: Final = frozenset(
    {"connection", "content-length", "host", "te", "trailer", "transfer-encoding", "upgrade"}
)
_MOST_REDIRECTS: Final = 10
# The others have places in which to name each secret.
_TAKES_SECRETS: Final = (Executor.PYTHON, Executor.OTHER)
# The agent sets these; a value from the file would be lost without a word.
AGENT_VARIABLES: Final = frozenset(
    {
        *("HETUFLOW_TASK_ID", "HETUFLOW_INSTANCE_ID", "HETUFLOW_ATTEMPT", "HETUFLOW_SCHEDULED_AT"),
        *("HETUFLOW_NAMESPACE", "HETUFLOW_JOB", "HETUFLOW_OUTPUT", "HETUFLOW_PROGRESS"),
        *("HETUFLOW_SHARD_INDEX", "HETUFLOW_SHARD_TOTAL", "HETUFLOW_SLOT"),
        *("HETUFLOW_SECRETS", "TRACEPARENT"),
    }
)


def read_run(given: ValueReader, unsupported: Mapping[str, str]) -> Run | None:
    foreign = tuple(path.removeprefix("run.") for path in unsupported if path.startswith("run."))
    faults_before = len(given.faults)
    section = given.section(RUN_KEYS, unnamed=foreign)
    if section is None:
        return None
    section = supported(section, "run.", unsupported)
    executors = [executor for executor in Executor if executor in section.present]
    if len(executors) > 1:
        given.refuse(f"{' and '.join(executors)} exclude each other: keep one of them.")
    elif not executors and len(given.faults) == faults_before:
        # An unknown or unsupported executor is already a fault, and says more.
        given.refuse(f"nothing says what to run: use {listed(Executor)}.")
    _refuse_idle(section, executors)
    script = section.read("script", _script, None)
    shell = section.read("shell", lambda given: given.matching(SHELL, "a shell such as bash or sh"), None)
    env, secret_env = section.read("env", _environment, _nothing())
    return Run(
        command=section.read("command", _command, None),
        script=script,
        python=section.read("python", _python, None),
        http=section.read("http", _http, None),
        other=_other(section),
        shell=shell or DEFAULT_SHELL if script is not None else shell,
        env=env,
        secret_env=secret_env,
        secrets=section.read("secrets", read_secret_names, ()),
        workdir=section.read("workdir", _workdir, None),
        user=section.read("user", lambda given: given.matching(USER, "the name of a user of the host"), None),
        artifacts=section.read("artifacts", read_artifacts, ArtifactSpec()),
    )


def read_json_template(given: ValueReader) -> Any:
    """Any JSON value, every text in it a template."""
    before = len(given.faults)
    _check_texts(given)
    return plain(given.node) if len(given.faults) == before else None


def _check_texts(given: ValueReader) -> None:
    value = given.node.value
    if isinstance(value, str):
        read_template(given)
    elif isinstance(value, Mapping):
        for item in (given.entries() or {}).values():
            _check_texts(item)
    elif isinstance(value, tuple):
        for item in given.items() or []:
            _check_texts(item)


def _refuse_idle(section: SectionReader, executors: list[Executor]) -> None:
    """What the executor would not look at is refused, because nobody would notice that it has no effect."""
    present = section.present
    if "shell" in present and Executor.SCRIPT not in executors:
        present["shell"].refuse("only a script has a shell: remove it, or use script.")
    if "with" in present and Executor.OTHER not in executors:
        present["with"].refuse("goes with executor: name the executor it is for, or remove it.")
    if "secrets" in present and executors and executors[0] not in _TAKES_SECRETS:
        way = "headers" if executors == [Executor.HTTP] else "env"
        present["secrets"].refuse(
            f"{executors[0]} gets secrets by {way}: write {way}: {{NAME: {{secret: …}}}}."
        )
    if all(key in present and not present[key].is_empty() for key in ("user", "workdir", "artifacts")):
        # The agent brings and takes files with its own rights, so not where the user decides what is a file.
        present["artifacts"].refuse("a user's task has files in its fresh directory only: remove workdir.")
    for executor in (Executor.HTTP, Executor.PYTHON):
        if executors == [executor]:
            for key in ("env", "workdir", "user", "artifacts"):
                if key in present and not present[key].is_empty():
                    present[key].refuse(f"{executor} starts no process of its own: remove it.")


def _command(given: ValueReader) -> tuple[str, ...] | None:
    if isinstance(given.node.value, str):
        given.refuse("must be a list of arguments, such as [echo, hello]: for a line of shell use script.")
        return None
    arguments = each(given, read_template)
    if given.node.value == ():
        given.refuse("the list is empty: name the program to run.")
    elif arguments and not arguments[0]:
        given.refuse("the program's name is empty: name the program to run.")
    return arguments or None


def _script(given: ValueReader) -> str | None:
    text = given.text()
    if text is not None and not text.strip():
        given.refuse("the script is empty: write what to run.")
    return text


def _python(given: ValueReader) -> PythonCall | None:
    section = given.section(PYTHON_KEYS)
    if section is None:
        return None
    function = section.require(
        "function",
        lambda given: given.matching(FUNCTION, "a module and a function, such as acme.reports:nightly"),
        "name the function as module:function",
    )
    kwargs = section.read("kwargs", _named_values, None)
    return PythonCall(function=function, kwargs=kwargs) if function is not None else None


def _http(given: ValueReader) -> HttpCall | None:
    section = given.section(HTTP_KEYS)
    if section is None:
        return None
    url = section.require("url", _url, "say what to request")
    method = section.read(
        "method", lambda given: given.matching(METHOD, "a method such as GET or POST"), DEFAULT_METHOD
    )
    if "body" in section.present and "json" in section.present:
        given.refuse("body and json exclude each other: keep one of them.")
    expected = section.read("expected_status", _expected_status, DEFAULT_EXPECTED_STATUS)
    headers, secret_headers = section.read("headers", _headers, _nothing())
    call = HttpCall(
        url=url or "",
        method=method,
        headers=headers,
        secret_headers=secret_headers,
        body=section.read("body", read_template, None),
        json=section.read("json", read_json_template, None),
        expected_status=expected,
        redirects=section.read("redirects", _redirects, DEFAULT_REDIRECTS),
    )
    return call if url is not None else None


def _url(given: ValueReader) -> str | None:
    text = read_template(given)
    if text is None or text.startswith("{{"):
        return text
    if not text.lower().startswith(("http://", "https://")):
        given.refuse("must begin with http:// or https://.")
        return None
    if "@" in urlsplit(text.partition("{{")[0]).netloc:
        given.refuse("holds a user or password: put them into headers instead.")
        return None
    return text


def _headers(given: ValueReader) -> _Texts:
    for name, value in (given.entries() or {}).items():
        if not HEADER.fullmatch(name):
            value.refuse("is not the name of a header: use letters, digits and -.")
        elif name.lower() in _CONNECTION_HEADERS:
            value.refuse(f"{name} is set by the connection itself: remove it.")
    return _texts(given)


def _nothing() -> _Texts:
    return {}, {}


def _texts(given: ValueReader) -> _Texts:
    texts: dict[str, str] = {}
    uses: dict[str, SecretUse] = {}
    for name, value in (given.entries() or {}).items():
        if is_secret_use(value):
            use = read_secret_use(value)
            if use is not None:
                uses[name] = use
            continue
        text = read_template(value)
        if text is not None:
            texts[name] = text
    return texts, uses


def _expected_status(given: ValueReader) -> tuple[str, ...] | None:
    expected = "a status such as 200, or a class such as 2xx"
    if isinstance(given.node.value, tuple):
        statuses = each(given, lambda item: item.matching(STATUS, expected))
    else:
        status = given.matching(STATUS, expected)
        statuses = (status,) if status is not None else ()
    return tuple(sorted(set(statuses))) or None


def _redirects(given: ValueReader) -> int | None:
    return given.integer(0, _MOST_REDIRECTS)


def _other(section: SectionReader) -> OtherCall | None:
    name = section.read("executor", _executor_name, None)
    if name is None:
        return None
    return OtherCall(executor=name, options=section.read("with", _named_values, {}))


def _executor_name(given: ValueReader) -> str | None:
    name = given.matching(EXECUTOR, "the name of an executor that agents have")
    if name in tuple(Executor):
        given.refuse(f"{name} has a key of its own: write run: {{{name}: …}}.")
        return None
    return name


def _named_values(given: ValueReader) -> dict[str, Any] | None:
    if given.entries() is None:
        return None
    value: dict[str, Any] | None = read_json_template(given)
    return value


def _environment(given: ValueReader) -> _Texts:
    for name, value in (given.entries() or {}).items():
        if not VARIABLE.fullmatch(name):
            value.refuse("a variable's name has letters, digits and _, and no digit first: rename it.")
        elif name in AGENT_VARIABLES:
            value.refuse(f"{name} is set by the agent: use another name.")
    return _texts(given)


def _workdir(given: ValueReader) -> str | None:
    text = given.text()
    if text is not None and not text.startswith("/"):
        given.refuse("must be an absolute path, or null for a fresh directory per instance.")
    elif text is not None and "{{" in text:
        given.refuse("is not a template: write the path itself.")
    return text
