"""Documents of kind `job`: what is run, or a flow of nodes, and how and when."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import timedelta
from enum import StrEnum
from typing import Annotated, Any, ClassVar, Final

import msgspec

from hetuflow_core.fields import (
    LABELS,
    NAME,
    PRIORITY,
    AtMostOne,
    Check,
    Inline,
    Key,
    OneOf,
    Without,
    Written,
    choice,
    distinct,
    duration,
    matching,
    section,
    several,
    whole,
)
from hetuflow_core.flow import Graph, GraphNode, OnFailure, TriggerRule
from hetuflow_core.jobfile.flow_nodes import (
    LONG_DURATION,
    MOMENT,
    Approval,
    EventWait,
    Fleet,
    MapOver,
    expression,
)
from hetuflow_core.jobfile.flow_references import CONDITION_NAMES, FLOW_NAMES
from hetuflow_core.jobfile.job_rules import (
    NODE_WORK_KEYS,
    WORK_KEYS,
    check_graph,
    check_retry,
    check_schedules,
    idle_key,
    refuse_idle_rules,
)
from hetuflow_core.jobfile.kinds import DEFAULT_NAMESPACE, Kind, Namespace
from hetuflow_core.jobfile.leases import LEASE
from hetuflow_core.jobfile.limits import SCOPE
from hetuflow_core.jobfile.run import Run
from hetuflow_core.limits import MOST_CONCURRENT
from hetuflow_core.placement import PLACEMENT, Requirements
from hetuflow_core.retry import EXIT_CODE, RetryPolicy
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_core.templates.forms import TEMPLATE, TEMPLATE_OBJECT, scoped

_MOST_SCHEDULES: Final = 1000
# Attempts of a node with `on_failure: retry` that says nothing else.
_RETRIED: Final = 3
_BODIES: Final = ("run", "job", "flow", "approval", "wait_for_event", "wait_until")
_WAIT_KEYS: Final = ("map", "fleet", "params", "deadline", "priority", *WORK_KEYS)


class OnLost(StrEnum):
    """What the agent does with work it can no longer report about."""

    KILL = "kill"
    CONTINUE = "continue"


class Concurrency(msgspec.Struct, frozen=True, kw_only=True):
    """How many instances of the job may be under way at once; with a key, how many for each of its values."""

    max: Annotated[
        int | None,
        whole(1, MOST_CONCURRENT),
        Key("Most instances at once.", default_doc="any number; 1 for each value of `key`"),
    ] = None
    key: Annotated[
        str | None,
        TEMPLATE,
        Key("Rendered when a task is created; instances with different values do not limit each other."),
    ] = None

    @property
    def per_key(self) -> int:
        return 1 if self.max is None else self.max


def _work_of(work: dict[str, Any], node: Mapping[str, Any]) -> JobSpec:
    """What a node with `run` does, as a job under the name of the node."""
    if node.get("on_failure") is OnFailure.RETRY:
        work.setdefault("retry", RetryPolicy(max_attempts=_RETRIED))
    return JobSpec(name=node.get("name", "node"), **work)


class FlowNode(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly one of `work`, `job`, `flow`, `approval`, `wait_for_event` and `wait_until` is set."""

    RULES: ClassVar = (
        OneOf(_BODIES, "nothing says what the node does: use {keys}."),
        AtMostOne(("map", "fleet"), at="fleet"),
        # A key without an effect on the node is refused.
        Without("job", WORK_KEYS, idle_key),
        Without("flow", ("fleet", *WORK_KEYS), idle_key),
        *(Without(body, _WAIT_KEYS, idle_key) for body in ("approval", "wait_for_event", "wait_until")),
        Check(check_retry),
    )

    name: Annotated[
        str,
        matching(
            re.compile(r"[a-z0-9]([a-z0-9_-]{0,62}[a-z0-9])?"),
            "lower-case letters, digits and, inside, also _ -",
            summary="name",
        ),
        Key("Name of the node, unique in the flow.", missing="name the node"),
    ]
    needs: Annotated[
        tuple[str, ...], several(NAME, tuple), Key("Nodes that must end before this one starts.")
    ] = ()
    when: Annotated[
        str | None,
        expression(CONDITION_NAMES),
        Key("The node is skipped if this condition is false.", written=Written.SET),
    ] = None
    trigger: Annotated[
        TriggerRule, Key("Which ends of the nodes it needs let it start; otherwise it is skipped.")
    ] = TriggerRule.ALL_SUCCEEDED
    on_failure: Annotated[
        OnFailure | None,
        Key(
            "What its failure does to the run of the flow.",
            written=Written.SET,
            default_doc="`on_failure` of the flow",
        ),
    ] = None
    work: Annotated[JobSpec | None, Inline(("run", *WORK_KEYS), when="run", build=_work_of)] = None
    job: Annotated[str | None, NAME, Key("Job of the namespace that the node runs.")] = None
    flow: Annotated[str | None, NAME, Key("Job with a flow that the node runs.")] = None
    approval: Annotated[Approval | None, Key("A person decides whether the run continues.")] = None
    wait_for_event: Annotated[EventWait | None, Key("The node ends when this event comes.")] = None
    wait_until: Annotated[
        str | None, MOMENT, Key("The node ends at this instant, or after this duration.")
    ] = None
    params: Annotated[
        dict[str, Any],
        TEMPLATE_OBJECT,
        Key("Parameters of its task; they replace those of the run.", written=Written.SET),
    ] = {}
    map: Annotated[
        MapOver | None,
        section(MapOver, alone="over"),
        Key("Runs the node once for each item; a list or template stands for `over`.", written=Written.SET),
    ] = None
    fleet: Annotated[
        Fleet | None,
        Key("Runs the node once on every agent that fits its placement.", written=Written.SET),
    ] = None
    deadline: Annotated[
        timedelta | None,
        LONG_DURATION,
        Key("How long its task may take with all its attempts.", written=Written.SET, default_doc="no bound"),
    ] = None
    priority: Annotated[
        int | None,
        PRIORITY,
        Key(
            "Among due instances, the highest priority goes first.",
            written=Written.SET,
            default_doc="the priority of the run",
        ),
    ] = None

    @property
    def called(self) -> str | None:
        """The job whose task it becomes, unless it is work of its own or waits."""
        return self.job or self.flow

    @property
    def has_tasks(self) -> bool:
        return self.work is not None or self.called is not None


class FlowSpec(msgspec.Struct, frozen=True, kw_only=True):
    RULES: ClassVar = (Check(check_graph),)

    nodes: Annotated[
        tuple[FlowNode, ...],
        several(section(FlowNode), tuple, least=1),
        Key("The nodes of the graph.", missing="list the nodes"),
    ]
    on_failure: Annotated[
        OnFailure,
        choice(
            OnFailure,
            {OnFailure.RETRY: "a flow as a whole is aborted or goes on: give nodes a retry."},
        ),
        Key("What the failure of a node does to the run, unless the node says otherwise."),
    ] = OnFailure.ABORT

    def node(self, name: str) -> FlowNode:
        return next(node for node in self.nodes if node.name == name)

    def graph(self) -> Graph:
        return Graph(self.graph_node(node) for node in self.nodes)

    def graph_node(self, node: FlowNode) -> GraphNode:
        return GraphNode(
            name=node.name,
            needs=node.needs,
            trigger=node.trigger,
            aborts=(node.on_failure or self.on_failure) is not OnFailure.CONTINUE,
            conditional=node.when is not None,
        )


class JobSpec(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly one of `run` and `flow` is set."""

    kind: ClassVar[Kind] = Kind.JOB
    RULES: ClassVar = (
        OneOf(
            ("run", "flow"),
            '"run" is missing: say what to run, such as run: {command: [echo, hello]}.',
            unread=True,
        ),
        Without(
            "flow", NODE_WORK_KEYS, "a flow's nodes have their own {key}: move it into them.", empty=True
        ),
        Check(refuse_idle_rules),
        Check(check_schedules),
    )

    namespace: Namespace = DEFAULT_NAMESPACE
    name: Annotated[str, NAME, Key("Name of the job.", missing="name the job")]
    labels: Annotated[dict[str, str], LABELS, Key("Facts about the job.")] = {}
    run: Annotated[Run | None, Key("What to execute.")] = None
    flow: Annotated[FlowSpec | None, scoped(section(FlowSpec), FLOW_NAMES), Key("A graph of nodes.")] = None
    params: Annotated[
        dict[str, Any], Key("Parameters of its tasks. What a run gives goes on top of it, key by key.")
    ] = {}
    params_schema: Annotated[
        None,
        Key("Not supported yet.", refused="params_schema is not supported by this version yet: remove it."),
    ] = None
    priority: Annotated[int, PRIORITY, Key("Among due instances, the highest priority goes first.")] = 500
    timeout: Annotated[
        timedelta | None, LONG_DURATION, Key("How long one attempt may take.", default_doc="no bound")
    ] = None
    deadline: Annotated[
        timedelta | None,
        LONG_DURATION,
        Key("How long the task may take with all its attempts.", default_doc="no bound"),
    ] = None
    retry: Annotated[RetryPolicy, Key("How often it is tried again, and when.")] = RetryPolicy()
    concurrency: Annotated[
        Concurrency,
        Key("How many of its instances may be under way at once, or for each value of `key`."),
    ] = Concurrency()
    limits: Annotated[
        tuple[str, ...], several(SCOPE, distinct), Key("Names of limits it shares with other jobs.")
    ] = ()
    placement: Annotated[Requirements, PLACEMENT, Key("Which agents may run it.")] = Requirements()
    kill_grace: Annotated[
        timedelta,
        duration(timedelta(0), timedelta(days=1)),
        Key("Time between SIGTERM and SIGKILL for a task that is ended."),
    ] = timedelta(seconds=30)
    on_lost: Annotated[OnLost, Key("What an agent without contact does with the work.")] = OnLost.KILL
    lease: Annotated[
        timedelta | None,
        LEASE,
        Key("How long an agent that is not heard of keeps the work.", default_doc="`lease` of the namespace"),
    ] = None
    skip_exit_codes: Annotated[
        tuple[int, ...], several(EXIT_CODE, distinct), Key("Exit codes that mean: nothing to do.")
    ] = ()
    schedules: Annotated[
        tuple[ScheduleSpec, ...],
        several(
            section(ScheduleSpec),
            tuple,
            most=_MOST_SCHEDULES,
            too_many=f"a job has at most {_MOST_SCHEDULES} schedules: spread them over several jobs.",
        ),
        Key("When it runs by itself.", written=Written.SET),
    ] = ()

    def without_schedules(self) -> JobSpec:
        """What a version of the job keeps: schedules have versions of their own."""
        return msgspec.structs.replace(self, schedules=())

    @property
    def requirements(self) -> Requirements:
        """What an agent must have: what `placement` says, and the executor and user of `run`."""
        if self.run is None:
            return self.placement
        return msgspec.structs.replace(
            self.placement, executor=self.run.required_executor, user=self.run.user
        )
