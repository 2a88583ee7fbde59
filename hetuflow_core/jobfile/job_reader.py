"""Raw documents of kind `job` and `namespace` to specs: every rule of the job file that is not a type."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from hetuflow_core import templates
from hetuflow_core.errors import Invalid
from hetuflow_core.jobfile.documents import (
    DEFAULT_KILL_GRACE,
    DEFAULT_LEASE,
    DEFAULT_NAMESPACE,
    DEFAULT_PRIORITY,
    DEFAULT_SHELL,
    DEFAULT_WEIGHT,
    Concurrency,
    Executor,
    JobSpec,
    NamespaceSpec,
    OnLost,
    Run,
)
from hetuflow_core.jobfile.given import Given, Section, each, listed
from hetuflow_core.jobfile.placement_reader import read_requirements
from hetuflow_core.jobfile.retry_reader import read_retry, refuse_idle_rules
from hetuflow_core.jobfile.unsupported import supported
from hetuflow_core.placement import Requirements
from hetuflow_core.retry import RetryPolicy

JOB_KEYS: Final = (
    *("kind", "namespace", "name", "labels", "run", "flow", "params", "params_schema", "priority"),
    *("timeout", "deadline", "retry", "concurrency", "limits", "placement", "kill_grace", "on_lost"),
    *("lease", "skip_exit_codes", "schedules"),
)
NAMESPACE_KEYS: Final = ("kind", "name", "weight", "labels")
RUN_KEYS: Final = (*Executor, "shell", "env", "workdir")

_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9._-]{0,126}[a-z0-9])?")
_NAME_EXPECTED: Final = "lower-case letters, digits and, inside, also . _ - (128 characters at most)"
_SCOPE: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,62}:[A-Za-z0-9][A-Za-z0-9._/-]{0,126}")
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,254}")
_SHELL: Final = re.compile(r"/?[A-Za-z0-9_.+-]+(/[A-Za-z0-9_.+-]+)*")
# The agent sets these; a value from the file would be lost without a word.
_AGENT_VARIABLES: Final = frozenset(
    {
        *("HETUFLOW_TASK_ID", "HETUFLOW_INSTANCE_ID", "HETUFLOW_ATTEMPT", "HETUFLOW_SCHEDULED_AT"),
        *("HETUFLOW_NAMESPACE", "HETUFLOW_JOB", "HETUFLOW_OUTPUT"),
        *("HETUFLOW_SHARD_INDEX", "HETUFLOW_SHARD_TOTAL", "TRACEPARENT"),
    }
)

_MOMENT: Final = timedelta(milliseconds=1)
_YEAR: Final = timedelta(days=366)
_LONGEST_GRACE: Final = timedelta(days=1)
# Under four seconds the fractions of it at which agents warn and kill are finer than a heartbeat.
_SHORTEST_LEASE: Final = timedelta(seconds=4)
_LONGEST_LEASE: Final = timedelta(days=7)
_HIGHEST_PRIORITY: Final = 1000
_MOST_WEIGHT: Final = 10_000
_MOST_CONCURRENT: Final = 1_000_000
_HIGHEST_EXIT_CODE: Final = 255


def read_namespace(given: Given) -> NamespaceSpec | None:
    section = given.section(NAMESPACE_KEYS)
    if section is None:
        return None
    name = section.require("name", _name, "name the namespace")
    weight = section.read("weight", lambda given: given.integer(1, _MOST_WEIGHT), DEFAULT_WEIGHT)
    labels: dict[str, str] = section.read("labels", Given.labels, {})
    return NamespaceSpec(name=name, weight=weight, labels=labels) if name else None


def read_job(given: Given, unsupported: Mapping[str, str]) -> JobSpec | None:
    section = given.section(JOB_KEYS)
    if section is None:
        return None
    section = supported(section, "", unsupported)
    name = section.require("name", _name, "name the job")
    namespace = section.read("namespace", _name, DEFAULT_NAMESPACE)
    labels: dict[str, str] = section.read("labels", Given.labels, {})
    run = _body(given, section, unsupported)
    params: dict[str, Any] = section.read("params", Given.json_object, {})
    priority = section.read("priority", lambda given: given.integer(0, _HIGHEST_PRIORITY), DEFAULT_PRIORITY)
    timeout = section.read("timeout", lambda given: given.duration(_MOMENT, _YEAR), None)
    deadline = section.read("deadline", lambda given: given.duration(_MOMENT, _YEAR), None)
    retry = section.read("retry", lambda given: read_retry(given, unsupported), RetryPolicy())
    concurrency = section.read("concurrency", _concurrency, Concurrency())
    limits: tuple[str, ...] = section.read("limits", _limits, ())
    placement = section.read("placement", lambda given: read_requirements(given, unsupported), Requirements())
    refuse_idle_rules(section, retry, placement.resources.memory)
    grace = section.read(
        "kill_grace", lambda given: given.duration(timedelta(0), _LONGEST_GRACE), DEFAULT_KILL_GRACE
    )
    on_lost = section.read("on_lost", lambda given: given.choice(OnLost), OnLost.KILL)
    lease = section.read(
        "lease", lambda given: given.duration(_SHORTEST_LEASE, _LONGEST_LEASE), DEFAULT_LEASE
    )
    skip_exit_codes: tuple[int, ...] = section.read("skip_exit_codes", _exit_codes, ())
    if name is None or run is None:
        return None
    return JobSpec(
        namespace=namespace,
        name=name,
        labels=labels,
        run=run,
        params=params,
        priority=priority,
        timeout=timeout,
        deadline=deadline,
        retry=retry,
        concurrency=concurrency,
        limits=limits,
        placement=placement,
        kill_grace=grace,
        on_lost=on_lost,
        lease=lease,
        skip_exit_codes=skip_exit_codes,
    )


def _name(given: Given) -> str | None:
    return given.matching(_NAME, _NAME_EXPECTED)


def _body(given: Given, section: Section, unsupported: Mapping[str, str]) -> Run | None:
    run = section.get("run")
    flow = (given.entries() or {}).get("flow")  # not of the section: it may have been refused there already
    has_flow = flow is not None and not flow.is_empty()
    if run is not None and has_flow:
        given.refuse("run and flow exclude each other: keep one of them.")
    elif run is None and not has_flow:
        given.refuse('"run" is missing: say what to run, such as run: {command: [echo, hello]}.')
    return _run(run, unsupported) if run is not None else None


def _run(given: Given, unsupported: Mapping[str, str]) -> Run | None:
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
    command = section.read("command", _command, None)
    script = section.read("script", _script, None)
    shell = section.read("shell", lambda given: given.matching(_SHELL, "a shell such as bash or sh"), None)
    if shell is not None and "script" not in section.present:
        section.present["shell"].refuse("only a script has a shell: remove it, or use script.")
    env: dict[str, str] = section.read("env", _environment, {})
    workdir = section.read("workdir", _workdir, None)
    if script is not None:
        shell = shell or DEFAULT_SHELL
    return Run(command=command, script=script, shell=shell, env=env, workdir=workdir)


def _command(given: Given) -> tuple[str, ...] | None:
    if isinstance(given.node.value, str):
        given.refuse("must be a list of arguments, such as [echo, hello]: for a line of shell use script.")
        return None
    arguments = each(given, _template)
    if given.node.value == ():
        given.refuse("the list is empty: name the program to run.")
    elif arguments and not arguments[0]:
        given.refuse("the program's name is empty: name the program to run.")
    return arguments or None


def _script(given: Given) -> str | None:
    text = given.text()
    if text is not None and not text.strip():
        given.refuse("the script is empty: write what to run.")
    return text


def _environment(given: Given) -> dict[str, str]:
    environment = {}
    for name, value in (given.entries() or {}).items():
        if not _VARIABLE.fullmatch(name):
            value.refuse("a variable's name has letters, digits and _, and no digit first: rename it.")
        elif name in _AGENT_VARIABLES:
            value.refuse(f"{name} is set by the agent: use another name.")
        text = _template(value)
        if text is not None:
            environment[name] = text
    return environment


def _template(given: Given) -> str | None:
    text = given.words()
    if text is None:
        return None
    try:
        templates.check(text)
    except Invalid as error:
        given.refuse(error.message)
        return None
    return text


def _workdir(given: Given) -> str | None:
    text = given.text()
    if text is not None and not text.startswith("/"):
        given.refuse("must be an absolute path, or null for a fresh directory per instance.")
    elif text is not None and "{{" in text:
        given.refuse("is not a template: write the path itself.")
    return text


def _concurrency(given: Given) -> Concurrency | None:
    section = given.section(("max", "key"))
    if section is None:
        return None
    return Concurrency(
        max=section.read("max", lambda given: given.integer(1, _MOST_CONCURRENT), None),
        key=section.read("key", _template, None),
    )


def _limits(given: Given) -> tuple[str, ...]:
    scopes = each(given, lambda item: item.matching(_SCOPE, "a kind and a name, such as tool:claude"))
    return tuple(sorted(set(scopes)))


def _exit_codes(given: Given) -> tuple[int, ...]:
    # 0 has a meaning already: it succeeded.
    return tuple(sorted(set(each(given, lambda item: item.integer(1, _HIGHEST_EXIT_CODE)))))
