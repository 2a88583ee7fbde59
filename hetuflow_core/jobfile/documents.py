"""The documents of a job file as both sides hold them; every field has the name it has in the file.

`hetuflow_core/jobfile/readers/jobs.py` makes them from raw documents and is where their rules are; a spec
that exists has been checked.
"""

from __future__ import annotations

from datetime import timedelta
from enum import StrEnum
from typing import Any, ClassVar, Final, TypeAlias

import msgspec

from hetuflow_core.flow import Graph, GraphNode, ItemShare, OnFailure, TriggerRule
from hetuflow_core.jobfile.calendars import CalendarSpec
from hetuflow_core.jobfile.kinds import DEFAULT_NAMESPACE, Kind
from hetuflow_core.jobfile.limits import LimitSpec
from hetuflow_core.jobfile.namespaces import NamespaceSpec
from hetuflow_core.jobfile.run import Run
from hetuflow_core.jobfile.secrets import SecretSpec
from hetuflow_core.jobfile.webhooks import WebhookSpec
from hetuflow_core.placement import Requirements
from hetuflow_core.retry import RetryPolicy
from hetuflow_core.schedule import ScheduleSpec

DEFAULT_PRIORITY: Final = 500
DEFAULT_KILL_GRACE: Final = timedelta(seconds=30)


class OnLost(StrEnum):
    """What the agent does with work it can no longer report about."""

    KILL = "kill"
    CONTINUE = "continue"


class Concurrency(msgspec.Struct, frozen=True, kw_only=True):
    """How many instances of the job may be under way at once; with a key, how many for each of its values."""

    max: int | None = None  # None: any number, and one for each value of a key
    key: str | None = None  # a template, rendered when the task is created

    @property
    def per_key(self) -> int:
        return 1 if self.max is None else self.max


class Approval(msgspec.Struct, frozen=True, kw_only=True):
    """A person decides whether a run goes on."""

    # Names of users or keys, or roles as in role:admin; empty: whoever may run the job.
    approvers: tuple[str, ...] = ()
    timeout: timedelta | None = None
    message: str | None = None  # a template


class EventWait(msgspec.Struct, frozen=True, kw_only=True):
    """A node that is over when an event of that name has come since it began to wait."""

    name: str
    filter: str | None = None
    timeout: timedelta | None = None


class MapOver(msgspec.Struct, frozen=True, kw_only=True):
    """A node that runs once for each item of a list."""

    over: Any  # a list, or a template that gives one
    max_parallel: int | None = None
    quorum: ItemShare | None = None


class Fleet(msgspec.Struct, frozen=True, kw_only=True):
    """A node that runs once on every agent that fits its placement."""

    waves: tuple[ItemShare, ...] = ()
    max_unavailable: ItemShare | None = None
    quorum: ItemShare | None = None


class FlowNode(msgspec.Struct, frozen=True, kw_only=True):
    """Exactly one of `work`, `job`, `flow`, `approval`, `wait_for_event` and `wait_until` is set."""

    name: str
    needs: tuple[str, ...] = ()
    when: str | None = None
    trigger: TriggerRule = TriggerRule.ALL_SUCCEEDED
    on_failure: OnFailure | None = None  # None: as the flow says
    # What a node with `run` does; it has the keys of a job, under the name of the node.
    work: JobSpec | None = None
    job: str | None = None
    flow: str | None = None
    approval: Approval | None = None
    wait_for_event: EventWait | None = None
    wait_until: str | None = None  # an instant or a duration, or a template that gives one
    params: dict[str, Any] = {}  # texts in it are templates
    map: MapOver | None = None
    fleet: Fleet | None = None
    deadline: timedelta | None = None
    priority: int | None = None  # None: as the run

    @property
    def called(self) -> str | None:
        """The job whose task it becomes, unless it is work of its own or waits."""
        return self.job or self.flow

    @property
    def has_tasks(self) -> bool:
        return self.work is not None or self.called is not None


class FlowSpec(msgspec.Struct, frozen=True, kw_only=True):
    nodes: tuple[FlowNode, ...]
    on_failure: OnFailure = OnFailure.ABORT

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

    namespace: str = DEFAULT_NAMESPACE
    name: str
    labels: dict[str, str] = {}
    run: Run | None = None
    flow: FlowSpec | None = None
    params: dict[str, Any] = {}
    priority: int = DEFAULT_PRIORITY
    timeout: timedelta | None = None  # per attempt
    deadline: timedelta | None = None  # for the whole task
    retry: RetryPolicy = RetryPolicy()
    concurrency: Concurrency = Concurrency()
    limits: tuple[str, ...] = ()
    placement: Requirements = Requirements()
    kill_grace: timedelta = DEFAULT_KILL_GRACE
    on_lost: OnLost = OnLost.KILL
    lease: timedelta | None = None  # that of its namespace
    skip_exit_codes: tuple[int, ...] = ()
    schedules: tuple[ScheduleSpec, ...] = ()

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


Document: TypeAlias = "JobSpec | NamespaceSpec | LimitSpec | CalendarSpec | SecretSpec | WebhookSpec"
