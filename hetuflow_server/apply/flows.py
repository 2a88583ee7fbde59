"""What flows call: jobs that are there, and never, however indirectly, themselves."""

from __future__ import annotations

from collections.abc import Sequence
from difflib import get_close_matches

from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.jobfile import Document, FlowSpec, JobSpec, from_document
from hetuflow_core.schedule import ScheduleSpec
from hetuflow_server.identity import access_store
from hetuflow_server.jobs import store as job_store
from hetuflow_server.postgres.database import Connection


async def refuse_bad_calls(connection: Connection, specs: Sequence[Document]) -> None:
    """Refuse flows among applied documents that call what is not there; every fault at once."""
    faults: list[Fault] = []
    wanted = sorted({spec.namespace for spec in specs if isinstance(spec, JobSpec)})
    namespaces = await access_store.namespace_ids(connection, wanted) if wanted else {}
    known = {name: _Calls(connection, id_) for name, id_ in namespaces.items()}
    for place, spec in enumerate(specs):
        if not isinstance(spec, JobSpec):
            continue
        calls = known[spec.namespace]
        if spec.flow is not None:
            faults += await calls.faults(f"documents[{place}].flow.nodes", spec.name, spec.flow)
        for number, schedule in enumerate(spec.schedules):
            faults += await calls.upstream_faults(
                f"documents[{place}].schedules[{number}].", spec.name, schedule
            )
    if faults:
        raise Invalid("The flows cannot be accepted.", code="job.invalid", faults=faults)


async def refuse_unknown_upstreams(
    connection: Connection, namespace_id: int, job: str, spec: ScheduleSpec, path: str
) -> None:
    """Refuse a schedule that is to fire after jobs that are not there."""
    faults = await _Calls(connection, namespace_id).upstream_faults(f"{path}." if path else "", job, spec)
    if faults:
        raise Invalid("The schedule cannot be accepted.", code="schedule.invalid", faults=faults)


class _Calls:
    """The jobs of a namespace, as far as flows call them."""

    def __init__(self, connection: Connection, namespace_id: int) -> None:
        self._connection = connection
        self._namespace_id = namespace_id
        self._known: dict[str, JobSpec | None] = {}

    async def faults(self, path: str, name: str, flow: FlowSpec) -> list[Fault]:
        found = []
        for place, node in enumerate(flow.nodes):
            if node.called is None:
                continue
            where = f"{path}[{place}].{'job' if node.job else 'flow'}"
            called = await self._job(node.called)
            if called is None:
                found.append(
                    Fault(where, f'there is no job "{node.called}": {await self._hint(node.called)}')
                )
            elif node.flow is not None and called.flow is None:
                found.append(Fault(where, f'"{node.called}" is no flow: write job instead.'))
            elif ring := await self._ring(node.called, [name]):
                found.append(Fault(where, f"flows call each other: {' → '.join(ring)}. Remove one."))
        return found

    async def upstream_faults(self, path: str, job: str, schedule: ScheduleSpec) -> list[Fault]:
        found = []
        for name in () if schedule.flow is None else schedule.flow.after:
            if name == job:
                found.append(Fault(f"{path}flow.after", f'"{name}" cannot run after itself: remove it.'))
            elif await self._job(name) is None:
                found.append(
                    Fault(f"{path}flow.after", f'there is no job "{name}": {await self._hint(name)}')
                )
        return found

    async def _ring(self, name: str, path: list[str]) -> list[str] | None:
        """Return the way back to where a path began, if there is one."""
        if name == path[0]:
            return [*path, name]
        spec = await self._job(name)
        if name in path or spec is None or spec.flow is None:
            return None
        for node in spec.flow.nodes:
            if node.called and (ring := await self._ring(node.called, [*path, name])):
                return ring
        return None

    async def _job(self, name: str) -> JobSpec | None:
        if name not in self._known:
            row = await job_store.job_named(self._connection, self._namespace_id, name)
            self._known[name] = None if row is None else from_document(row.spec)
        return self._known[name]

    async def _hint(self, name: str) -> str:
        names = await job_store.names(self._connection, self._namespace_id)
        close = get_close_matches(name, names, 1)
        return f'did you mean "{close[0]}"?' if close else "apply it first, or with this file."
