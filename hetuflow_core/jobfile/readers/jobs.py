"""Raw documents of kind `job` and `namespace` to specs: every rule of the job file that is not a type."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from hetuflow_core.fields.value_reader import SectionReader, ValueReader
from hetuflow_core.jobfile.documents import (
    DEFAULT_PRIORITY,
    Concurrency,
    FlowSpec,
    JobSpec,
)
from hetuflow_core.jobfile.kinds import DEFAULT_NAMESPACE
from hetuflow_core.jobfile.readers.flows import read_flow
from hetuflow_core.jobfile.readers.names import read_name
from hetuflow_core.jobfile.readers.run import read_run
from hetuflow_core.jobfile.readers.schedules import read_schedules
from hetuflow_core.jobfile.readers.templates import read_template
from hetuflow_core.jobfile.readers.unsupported import supported
from hetuflow_core.jobfile.readers.work import (
    NODE_WORK_KEYS,
    read_long_duration,
    read_priority,
    read_work,
)
from hetuflow_core.jobfile.run import Run
from hetuflow_core.limits import MOST_CONCURRENT
from hetuflow_core.schedule import ScheduleSpec

JOB_KEYS: Final = (
    *("kind", "namespace", "name", "labels", "run", "flow", "params", "params_schema", "priority"),
    *("timeout", "deadline", "retry", "concurrency", "limits", "placement", "kill_grace", "on_lost"),
    *("lease", "skip_exit_codes", "schedules"),
)

FLOWS_END: Final = "a flow ends, so nothing can keep it running: give it no daemon."


def read_job(given: ValueReader, unsupported: Mapping[str, str]) -> JobSpec | None:
    section = given.section(JOB_KEYS)
    if section is None:
        return None
    section = supported(section, "", unsupported)
    name = section.require("name", read_name, "name the job")
    namespace = section.read("namespace", read_name, DEFAULT_NAMESPACE)
    labels: dict[str, str] = section.read("labels", ValueReader.labels, {})
    body = _body(given, section, unsupported)
    params: dict[str, Any] = section.read("params", ValueReader.json_object, {})
    priority = section.read("priority", read_priority, DEFAULT_PRIORITY)
    deadline = section.read("deadline", read_long_duration, None)
    concurrency = section.read("concurrency", _concurrency, Concurrency())
    work = read_work(section, unsupported)
    schedules: tuple[ScheduleSpec, ...] = section.read(
        "schedules", lambda given: read_schedules(given, unsupported), ()
    )
    if isinstance(body, FlowSpec) and any(schedule.daemon is not None for schedule in schedules):
        section.present["schedules"].refuse(FLOWS_END)
    if name is None or body is None:
        return None
    return JobSpec(
        namespace=namespace,
        name=name,
        labels=labels,
        run=body if isinstance(body, Run) else None,
        flow=body if isinstance(body, FlowSpec) else None,
        params=params,
        priority=priority,
        deadline=deadline,
        concurrency=concurrency,
        schedules=schedules,
        **work,
    )


def _body(
    given: ValueReader, section: SectionReader, unsupported: Mapping[str, str]
) -> Run | FlowSpec | None:
    run, flow = section.get("run"), section.get("flow")
    said = (given.entries() or {}).get("flow")  # not of the section: it may have been refused there already
    has_flow = said is not None and not said.is_empty()
    if run is not None and has_flow:
        given.refuse("run and flow exclude each other: keep one of them.")
    elif run is None and not has_flow:
        given.refuse('"run" is missing: say what to run, such as run: {command: [echo, hello]}.')
    elif flow is not None:
        for key in NODE_WORK_KEYS:
            if (idle := section.get(key)) is not None and not idle.is_empty():
                idle.refuse(f"a flow's nodes have their own {key}: move it into them.")
        return read_flow(flow, unsupported)
    return read_run(run, unsupported) if run is not None else None


def _concurrency(given: ValueReader) -> Concurrency | None:
    section = given.section(("max", "key"))
    if section is None:
        return None
    return Concurrency(
        max=section.read("max", lambda given: given.integer(1, MOST_CONCURRENT), None),
        key=section.read("key", read_template, None),
    )
