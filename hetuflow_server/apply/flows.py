"""Applied flows and schedules name jobs that exist, in the database or among the documents."""

from __future__ import annotations

from collections.abc import Sequence

from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.jobfile import Document, JobSpec
from hetuflow_server.flows.references import call_faults
from hetuflow_server.identity import access_store
from hetuflow_server.jobs.references import NamedJobs
from hetuflow_server.postgres.database import Connection
from hetuflow_server.schedules.upstream_references import upstream_faults


async def refuse_bad_calls(connection: Connection, specs: Sequence[Document]) -> None:
    """Refuse flows among applied documents that call what is not there; every fault at once."""
    faults: list[Fault] = []
    wanted = sorted({spec.namespace for spec in specs if isinstance(spec, JobSpec)})
    namespaces = await access_store.namespace_ids(connection, wanted) if wanted else {}
    known = {name: NamedJobs(connection, id_) for name, id_ in namespaces.items()}
    for place, spec in enumerate(specs):
        if not isinstance(spec, JobSpec):
            continue
        jobs = known[spec.namespace]
        if spec.flow is not None:
            faults += await call_faults(jobs, f"documents[{place}].flow.nodes", spec.name, spec.flow)
        for number, schedule in enumerate(spec.schedules):
            faults += await upstream_faults(
                jobs, f"documents[{place}].schedules[{number}].", spec.name, schedule
            )
    if faults:
        raise Invalid("The flows cannot be accepted.", code="job.invalid", faults=faults)
