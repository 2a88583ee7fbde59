"""A job's `flow`: nodes, what they need, and what each of them does."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any, Final

from hetuflow_core.durations import parse_duration
from hetuflow_core.errors import Invalid
from hetuflow_core.events import EXPRESSION_NAMES, check_name
from hetuflow_core.expressions import condition
from hetuflow_core.fields.value_reader import SectionReader, TemplateScope, ValueReader, each, listed
from hetuflow_core.flow import ItemShare, OnFailure, TriggerRule, problems
from hetuflow_core.jobfile.documents import (
    Approval,
    EventWait,
    Fleet,
    FlowNode,
    FlowSpec,
    JobSpec,
    MapOver,
)
from hetuflow_core.jobfile.readers.flow_references import CONDITION_NAMES, FLOW_NAMES, refuse_bad_references
from hetuflow_core.jobfile.readers.instants import read_instant
from hetuflow_core.jobfile.readers.names import read_name
from hetuflow_core.jobfile.readers.run import read_json_template, read_run
from hetuflow_core.jobfile.readers.templates import read_template
from hetuflow_core.jobfile.readers.unsupported import supported
from hetuflow_core.jobfile.readers.work import WORK_KEYS, read_long_duration, read_priority, read_work
from hetuflow_core.retry import RetryPolicy

BODIES: Final = ("run", "job", "flow", "approval", "wait_for_event", "wait_until")
NODE_KEYS: Final = (
    *("name", "needs", "when", "trigger", "on_failure"),
    *BODIES,
    *("params", "map", "fleet", "deadline", "priority"),
    *WORK_KEYS,
)
APPROVAL_KEYS: Final = ("approvers", "timeout", "message")
EVENT_WAIT_KEYS: Final = ("name", "filter", "timeout")
MAP_KEYS: Final = ("over", "max_parallel", "quorum")
FLEET_KEYS: Final = ("waves", "max_unavailable", "quorum")

MOST_ITEMS: Final = 10_000
NODE_NAME: Final = re.compile(r"[a-z0-9]([a-z0-9_-]{0,62}[a-z0-9])?")
APPROVER: Final = re.compile(r"[^\s,]{1,128}")
_PERCENT: Final = re.compile(r"([0-9]{1,3})%")
_WHOLE: Final = 100
_MOST_WAVES: Final = 100
_RETRIED: Final = 3
# What a node may have, beside what every node has; a key elsewhere would have no effect.
_OF_WORK: Final = ("params", "map", "fleet", "deadline", "priority", *WORK_KEYS)
_OF_CALLS: Final = ("params", "map", "deadline", "priority")
ALLOWED: Final[Mapping[str, tuple[str, ...]]] = {
    "run": _OF_WORK,
    "job": (*_OF_CALLS, "fleet"),
    "flow": _OF_CALLS,
    "approval": (),
    "wait_for_event": (),
    "wait_until": (),
}


def read_flow(given: ValueReader, unsupported: Mapping[str, str]) -> FlowSpec | None:
    section = given.section(("nodes", "on_failure"))
    if section is None:
        return None
    on_failure = section.read("on_failure", lambda given: given.choice(OnFailure), OnFailure.ABORT)
    if on_failure is OnFailure.RETRY:
        section.present["on_failure"].refuse("a flow as a whole is aborted or goes on: give nodes a retry.")
    items = section.require("nodes", ValueReader.items, "list the nodes")
    if items is None:
        return None
    faults_before = len(given.faults)
    scopes = [TemplateScope(FLOW_NAMES) for _ in items]
    read = [_node(item.within(scope), unsupported) for item, scope in zip(items, scopes, strict=True)]
    nodes = [node for node in read if node is not None]
    whole = len(nodes) == len(items)
    spec = FlowSpec(nodes=tuple(nodes), on_failure=on_failure)
    if whole:
        # A node without a name would make others look wrong.
        for problem in problems([spec.graph_node(node) for node in nodes]):
            place = given if problem.place is None else items[problem.place]
            entries = (place.entries() or {}) if problem.key else {}
            entries.get(problem.key or "", place).refuse(problem.message)
    if whole and len(given.faults) == faults_before:
        texts = [scope.texts for scope in scopes]
        refuse_bad_references(spec, list(zip(items, texts, strict=True)))
    return spec if len(given.faults) == faults_before else None


def _node(given: ValueReader, unsupported: Mapping[str, str]) -> FlowNode | None:
    section = given.section(NODE_KEYS)
    if section is None:
        return None
    section = supported(section, "flow.nodes.", unsupported)
    name = section.require(
        "name",
        lambda given: given.matching(NODE_NAME, "lower-case letters, digits and, inside, also _ -"),
        "name the node",
    )
    body = _body(given, section)
    on_failure = section.read("on_failure", lambda given: given.choice(OnFailure), None)
    work = _work(section, name or "node", on_failure, unsupported) if body == "run" else None
    if on_failure is OnFailure.RETRY and body != "run":
        section.present["on_failure"].refuse(
            "only nodes with run are tried again: give the job itself a retry."
        )
    params: dict[str, Any] = section.read("params", _params, {})
    needs: tuple[str, ...] = section.read("needs", lambda given: each(given, read_name), ())
    node = FlowNode(
        name=name or "",
        needs=needs,
        when=section.read("when", lambda given: _expression(given, CONDITION_NAMES), None),
        trigger=section.read("trigger", lambda given: given.choice(TriggerRule), TriggerRule.ALL_SUCCEEDED),
        on_failure=on_failure,
        work=work,
        job=section.read("job", read_name, None),
        flow=section.read("flow", read_name, None),
        approval=section.read("approval", _approval, None),
        wait_for_event=section.read("wait_for_event", _event_wait, None),
        wait_until=section.read("wait_until", _moment, None),
        params=params,
        map=section.read("map", _map, None),
        fleet=section.read("fleet", _fleet, None),
        deadline=section.read("deadline", read_long_duration, None),
        priority=section.read("priority", read_priority, None),
    )
    if node.map is not None and node.fleet is not None:
        section.present["fleet"].refuse("map and fleet exclude each other: keep one of them.")
    # Also with faults: the shape of the graph can be judged all the same.
    return node if name is not None else None


def _body(given: ValueReader, section: SectionReader) -> str | None:
    present = [key for key in BODIES if key in section.present]
    if len(present) > 1:
        given.refuse(f"{' and '.join(present)} exclude each other: keep one of them.")
        return None
    if not present:
        entries = given.entries() or {}
        if all(key not in entries or entries[key].is_empty() for key in BODIES):
            given.refuse(f"nothing says what the node does: use {listed(BODIES)}.")
        return None
    (body,) = present
    for key in ("map", "fleet", "params", "deadline", "priority", *WORK_KEYS):
        if key in section.present and key not in ALLOWED[body]:
            section.present[key].refuse(f"says nothing for a node with {body}: {_remedy(body, key)}.")
    return body


def _remedy(body: str, key: str) -> str:
    if body in {"job", "flow"} and key == "timeout":
        return "use deadline, or give the job a timeout"
    if body in {"job", "flow"} and key in WORK_KEYS:
        return "move it into the job"
    return f"put timeout into {body}" if key == "timeout" and body != "wait_until" else "remove it"


def _work(
    section: SectionReader, name: str, on_failure: OnFailure | None, unsupported: Mapping[str, str]
) -> JobSpec | None:
    run = read_run(section.present["run"], unsupported)
    settings = read_work(section, unsupported)
    if on_failure is OnFailure.RETRY and settings["retry"].max_attempts == 1:
        if "retry" in section.present:
            section.present["retry"].refuse("on_failure: retry needs max_attempts of 2 or more.")
        settings["retry"] = RetryPolicy(max_attempts=_RETRIED)
    return None if run is None else JobSpec(name=name, run=run, **settings)


def _params(given: ValueReader) -> dict[str, Any] | None:
    if given.entries() is None:
        return None
    value: dict[str, Any] | None = read_json_template(given)
    return value


def _expression(given: ValueReader, names: tuple[str, ...]) -> str | None:
    text = given.text()
    if text is None:
        return None
    try:
        condition(text, names)
    except Invalid as error:
        for message in [str(fault) for fault in error.faults] or [error.message]:
            given.refuse(message)
        return None
    return text


def _approval(given: ValueReader) -> Approval | None:
    section = given.section(APPROVAL_KEYS)
    if section is None:
        return None
    approvers: tuple[str, ...] = section.read("approvers", lambda given: each(given, _approver), ())
    return Approval(
        approvers=tuple(sorted(set(approvers))),
        timeout=section.read("timeout", read_long_duration, None),
        message=section.read("message", read_template, None),
    )


def _approver(given: ValueReader) -> str | None:
    return given.matching(APPROVER, "the name of a user or key, or role:admin")


def _event_wait(given: ValueReader) -> EventWait | None:
    section = given.section(EVENT_WAIT_KEYS)
    if section is None:
        return None
    name = section.require(
        "name",
        _event_name,
        "name the event",
    )
    return EventWait(
        name=name or "",
        filter=section.read("filter", lambda given: _expression(given, EXPRESSION_NAMES), None),
        timeout=section.read("timeout", read_long_duration, None),
    )


def _event_name(given: ValueReader) -> str | None:
    text = given.text()
    if text is None:
        return None
    try:
        check_name(text)
    except Invalid as error:
        given.refuse(error.message)
        return None
    return text


def _moment(given: ValueReader) -> str | None:
    text = read_template(given)
    if text is None or "{{" in text:
        return text
    try:
        parse_duration(text)
    except Invalid:
        return text if read_instant(given) is not None else None
    return text


def _map(given: ValueReader) -> MapOver | None:
    if not isinstance(given.node.value, Mapping):
        over = _items(given)
        return None if over is None else MapOver(over=over)
    section = given.section(MAP_KEYS)
    if section is None:
        return None
    over = section.require("over", _items, "say what to map over")
    return MapOver(
        over=over,
        max_parallel=section.read("max_parallel", lambda given: given.integer(1, MOST_ITEMS), None),
        quorum=section.read("quorum", _share(0), None),
    )


def _items(given: ValueReader) -> Any:
    value = read_json_template(given)
    if isinstance(value, str) and "{{" not in value:
        given.refuse(
            'must be a list, or an expression that gives one, such as "{{ nodes.list.output.files }}".'
        )
    elif value is not None and not isinstance(value, (str, list)):
        given.refuse("must be a list, or an expression that gives one.")
    elif isinstance(value, list) and len(value) > MOST_ITEMS:
        given.refuse(f"a map has at most {MOST_ITEMS} items: map over groups of them.")
    return value


def _fleet(given: ValueReader) -> Fleet | None:
    section = given.section(FLEET_KEYS)
    if section is None:
        return None
    waves: tuple[ItemShare, ...] = section.read("waves", lambda given: each(given, _share(1)), ())
    if len(waves) > _MOST_WAVES:
        section.present["waves"].refuse(f"a fleet has at most {_MOST_WAVES} waves: use percentages.")
    return Fleet(
        waves=waves,
        max_unavailable=section.read("max_unavailable", _share(1), None),
        quorum=section.read("quorum", _share(0), None),
    )


def _share(least: int) -> Callable[[ValueReader], ItemShare | None]:
    def read(given: ValueReader) -> ItemShare | None:
        value = given.node.value
        if isinstance(value, str) and (match := _PERCENT.fullmatch(value)):
            percent = int(match[1])
            if least <= percent <= _WHOLE:
                return ItemShare(percent=percent)
            given.refuse(f"must be between {least}% and 100%, not {value}.")
            return None
        if isinstance(value, str):
            given.refuse("must be a number or a percentage, such as 5 or 25%.")
            return None
        count = given.integer(least, MOST_ITEMS)
        return None if count is None else ItemShare(count=count)

    return read
