"""Jobs that a flow calls must exist, and must not call the flow in turn, directly or through others."""

from __future__ import annotations

from hetuflow_core.errors import Fault
from hetuflow_core.jobfile import FlowSpec
from hetuflow_server.jobs.references import NamedJobs


async def call_faults(jobs: NamedJobs, path: str, name: str, flow: FlowSpec) -> list[Fault]:
    faults = []
    for place, node in enumerate(flow.nodes):
        if node.called is None:
            continue
        where = f"{path}[{place}].{'job' if node.job else 'flow'}"
        called = await jobs.get(node.called)
        if called is None:
            faults.append(Fault(where, await jobs.missing(node.called)))
        elif node.flow is not None and called.flow is None:
            faults.append(Fault(where, f'"{node.called}" is no flow: write job instead.'))
        elif ring := await _ring(jobs, node.called, [name]):
            faults.append(Fault(where, f"flows call each other: {' → '.join(ring)}. Remove one."))
    return faults


async def _ring(jobs: NamedJobs, name: str, path: list[str]) -> list[str] | None:
    """Return the way back to where a path began, if there is one."""
    if name == path[0]:
        return [*path, name]
    spec = await jobs.get(name)
    if name in path or spec is None or spec.flow is None:
        return None
    for node in spec.flow.nodes:
        if node.called and (ring := await _ring(jobs, node.called, [*path, name])):
            return ring
    return None
