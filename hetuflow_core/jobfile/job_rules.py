"""Rules of jobs and flows that go beyond a single key."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from typing import TYPE_CHECKING, Final

from hetuflow_core.fields import Section, ValueReader, shape_of
from hetuflow_core.flow import OnFailure, problems
from hetuflow_core.jobfile.flow_references import NodeTexts, refuse_bad_references
from hetuflow_core.schedule import ScheduleSpec

if TYPE_CHECKING:  # jobs have these rules
    from hetuflow_core.jobfile.jobs import FlowNode, FlowSpec, JobSpec

FLOWS_END: Final = "a flow ends, so nothing can keep it running: give it no daemon."
# What only makes sense where something is run; a flow as a whole has none of them.
NODE_WORK_KEYS: Final = ("retry", "placement", "kill_grace", "on_lost", "lease", "skip_exit_codes")
WORK_KEYS: Final = ("timeout", "limits", *NODE_WORK_KEYS)


def refuse_idle_rules(job: JobSpec, at: Section) -> None:
    """Refuse rules that could change nothing because of what the job says elsewhere."""
    rules = at.present["retry"].find("rules") if job.retry.rules else None
    items = [] if rules is None else rules.items() or []
    if len(items) != len(job.retry.rules):
        return  # one of them is at fault already
    for item, rule in zip(items, job.retry.rules, strict=True):
        change = rule.then.change.memory
        if change is not None and change.times is not None and not job.placement.resources.memory:
            item.refuse("multiplies memory the job does not ask for: set placement.resources.memory.")


def check_schedules(job: JobSpec, at: Section) -> None:
    if job.flow is not None and any(schedule.daemon is not None for schedule in job.schedules):
        at.refuse(FLOWS_END, "schedules")
    names: set[str] = set()
    for item, schedule in at.pairs("schedules", job.schedules, shape_of(ScheduleSpec).read):
        if schedule.name in names:
            item.refuse(f'the schedule "{schedule.name}" is written twice: rename one of them.')
        names.add(schedule.name)


def idle_key(body: str, key: str) -> str:
    """What is said about a key that has no effect on nodes with this body."""
    return f"says nothing for a node with {body}: {_remedy(body, key)}."


def _remedy(body: str, key: str) -> str:
    if body in {"job", "flow"} and key == "timeout":
        return "use deadline, or give the job a timeout"
    if body in {"job", "flow"} and key in WORK_KEYS:
        return "move it into the job"
    return f"put timeout into {body}" if key == "timeout" and body != "wait_until" else "remove it"


def check_retry(node: FlowNode, at: Section) -> None:
    if node.on_failure is OnFailure.RETRY and at.variant != "run":
        at.refuse("only nodes with run are tried again: give the job itself a retry.", "on_failure")
    if node.work is not None:
        if node.on_failure is OnFailure.RETRY and node.work.retry.max_attempts == 1:
            at.refuse("on_failure: retry needs max_attempts of 2 or more.", "retry")
        if "retry" in at.present:
            refuse_idle_rules(node.work, at)


def check_graph(flow: FlowSpec, at: Section) -> None:
    items = at.items("nodes")
    if len(flow.nodes) < len(items):
        return  # a node without a name would make others look wrong
    for problem in problems([flow.graph_node(node) for node in flow.nodes]):
        place = at.given if problem.place is None else items[problem.place]
        ((place.find(problem.key) if problem.key else None) or place).refuse(problem.message)
    if at.clean:
        refuse_bad_references(flow.graph(), _texts(flow, at, items))


def _texts(flow: FlowSpec, at: Section, items: list[ValueReader]) -> Iterator[NodeTexts]:
    templates: defaultdict[str, list[tuple[ValueReader, str]]] = defaultdict(list)
    behind = len(at.present["nodes"].path)
    for place, text in at.given.scope.texts if at.given.scope is not None else ():
        templates[place.path[: place.path.index("]", behind) + 1]].append((place, text))
    for node, item in zip(flow.nodes, items, strict=True):
        when = item.find("when")
        yield NodeTexts(
            name=node.name,
            templates=templates[item.path],
            condition=None if when is None or node.when is None else (when, node.when),
            fans_out=node.map is not None or node.fleet is not None,
        )
