"""Raw documents of kind `job` and `namespace` to specs: every rule of the job file that is not a type."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import timedelta
from typing import Any, Final

from hetuflow_core.jobfile.documents import (
    DEFAULT_KILL_GRACE,
    DEFAULT_LEASE,
    DEFAULT_NAMESPACE,
    DEFAULT_PRIORITY,
    DEFAULT_WEIGHT,
    Concurrency,
    JobSpec,
    NamespaceSpec,
    OnLost,
    Run,
)
from hetuflow_core.jobfile.given import Given, Section, each
from hetuflow_core.jobfile.limit_reader import read_scope
from hetuflow_core.jobfile.names import read_name
from hetuflow_core.jobfile.placement_reader import read_requirements
from hetuflow_core.jobfile.retry_reader import read_retry, refuse_idle_rules
from hetuflow_core.jobfile.run_reader import read_run
from hetuflow_core.jobfile.schedule_reader import read_schedules
from hetuflow_core.jobfile.template_reader import read_template
from hetuflow_core.jobfile.unsupported import supported
from hetuflow_core.limits import MOST_CONCURRENT
from hetuflow_core.placement import Requirements
from hetuflow_core.retry import RetryPolicy
from hetuflow_core.schedule import ScheduleSpec

JOB_KEYS: Final = (
    *("kind", "namespace", "name", "labels", "run", "flow", "params", "params_schema", "priority"),
    *("timeout", "deadline", "retry", "concurrency", "limits", "placement", "kill_grace", "on_lost"),
    *("lease", "skip_exit_codes", "schedules"),
)
NAMESPACE_KEYS: Final = ("kind", "name", "weight", "labels")

_MOMENT: Final = timedelta(milliseconds=1)
_YEAR: Final = timedelta(days=366)
_LONGEST_GRACE: Final = timedelta(days=1)
# Under four seconds the fractions of it at which agents warn and kill are finer than a heartbeat.
_SHORTEST_LEASE: Final = timedelta(seconds=4)
_LONGEST_LEASE: Final = timedelta(days=7)
_HIGHEST_PRIORITY: Final = 1000
_MOST_WEIGHT: Final = 10_000
_HIGHEST_EXIT_CODE: Final = 255


def read_namespace(given: Given) -> NamespaceSpec | None:
    section = given.section(NAMESPACE_KEYS)
    if section is None:
        return None
    name = section.require("name", read_name, "name the namespace")
    weight = section.read("weight", lambda given: given.integer(1, _MOST_WEIGHT), DEFAULT_WEIGHT)
    labels: dict[str, str] = section.read("labels", Given.labels, {})
    return NamespaceSpec(name=name, weight=weight, labels=labels) if name else None


def read_job(given: Given, unsupported: Mapping[str, str]) -> JobSpec | None:
    section = given.section(JOB_KEYS)
    if section is None:
        return None
    section = supported(section, "", unsupported)
    name = section.require("name", read_name, "name the job")
    namespace = section.read("namespace", read_name, DEFAULT_NAMESPACE)
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
    schedules: tuple[ScheduleSpec, ...] = section.read(
        "schedules", lambda given: read_schedules(given, unsupported), ()
    )
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
        schedules=schedules,
    )


def _body(given: Given, section: Section, unsupported: Mapping[str, str]) -> Run | None:
    run = section.get("run")
    flow = (given.entries() or {}).get("flow")  # not of the section: it may have been refused there already
    has_flow = flow is not None and not flow.is_empty()
    if run is not None and has_flow:
        given.refuse("run and flow exclude each other: keep one of them.")
    elif run is None and not has_flow:
        given.refuse('"run" is missing: say what to run, such as run: {command: [echo, hello]}.')
    return read_run(run, unsupported) if run is not None else None


def _concurrency(given: Given) -> Concurrency | None:
    section = given.section(("max", "key"))
    if section is None:
        return None
    return Concurrency(
        max=section.read("max", lambda given: given.integer(1, MOST_CONCURRENT), None),
        key=section.read("key", read_template, None),
    )


def _limits(given: Given) -> tuple[str, ...]:
    return tuple(sorted(set(each(given, read_scope))))


def _exit_codes(given: Given) -> tuple[int, ...]:
    # 0 has a meaning already: it succeeded.
    return tuple(sorted(set(each(given, lambda item: item.integer(1, _HIGHEST_EXIT_CODE)))))
