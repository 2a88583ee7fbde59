"""The flow of a job version, with what every run of it asks again and again; read once."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import UUID

import msgspec
from cachetools import LRUCache

from hetuflow_core.errors import Invalid
from hetuflow_core.flow import FanOut, Graph, fleet_spread
from hetuflow_core.flow.fan_out import ItemShare
from hetuflow_core.jobfile import FlowNode, FlowSpec
from hetuflow_core.jobfile.flow_references import references_of, references_of_condition
from hetuflow_server.flows.store import LockedRun
from hetuflow_server.jobs.versions import JobVersion, JobVersions
from hetuflow_server.postgres.database import Connection

_MOST_SHAPES: Final = 1_000
_SINGLE: Final = FanOut(total=1, parallel=1, quorum=1)

Paths = frozenset[tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class NodeDefinition:
    spec: FlowNode
    # Paths below `nodes` that its tasks, what it is spread over, and its condition refer to.
    task_paths: Paths
    other_paths: Paths

    def spread(self, total: int) -> FanOut:
        if self.spec.map is not None:
            parallel = self.spec.map.max_parallel
            return fleet_spread(
                total,
                parallel=None if parallel is None else ItemShare(count=parallel),
                quorum=self.spec.map.quorum,
            )
        if self.spec.fleet is not None:
            fleet = self.spec.fleet
            return fleet_spread(total, waves=fleet.waves, parallel=fleet.max_unavailable, quorum=fleet.quorum)
        return _SINGLE

    @property
    def is_spread(self) -> bool:
        return self.spec.map is not None or self.spec.fleet is not None


@dataclass(frozen=True, slots=True)
class FlowDefinition:
    version: JobVersion
    graph: Graph
    nodes: dict[str, NodeDefinition]

    @property
    def sinks(self) -> list[str]:
        return [name for name, below in self.graph.downstream.items() if not below]


class FlowDefinitions:
    def __init__(self, versions: JobVersions) -> None:
        self._versions = versions
        self._known: LRUCache[tuple[UUID, int], FlowDefinition] = LRUCache(_MOST_SHAPES)

    async def of_run(self, connection: Connection, run: LockedRun) -> FlowDefinition:
        return await self.of(connection, run.job_id, run.job_version)

    async def of(self, connection: Connection, job_id: UUID, version: int) -> FlowDefinition:
        key = (job_id, version)
        if (known := self._known.get(key)) is not None:
            return known
        found = await self._versions.get(connection, job_id, version)
        if found.spec.flow is None:
            raise Invalid(f"{found.name} is no flow.", code="job.no_flow")
        shape = self._known[key] = _shape(found, found.spec.flow)
        return shape


def _shape(version: JobVersion, flow: FlowSpec) -> FlowDefinition:
    return FlowDefinition(version, flow.graph(), {node.name: _node_shape(node) for node in flow.nodes})


def _node_shape(node: FlowNode) -> NodeDefinition:
    task_texts = _texts([msgspec.to_builtins(node.work.run) if node.work else None, node.params])
    others = [node.map.over if node.map else None, node.wait_until, node.approval and node.approval.message]
    other_paths = references_of(_texts(others))
    if node.when is not None:
        other_paths |= references_of_condition(node.when)
    return NodeDefinition(node, frozenset(references_of(task_texts)), frozenset(other_paths))


def _texts(value: Any) -> Iterator[str]:
    """Every text in it that may be a template; a script is none."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict):
        for key, item in value.items():
            if key != "script":
                yield from _texts(item)
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _texts(item)
