"""What the templates and conditions of a node see of the nodes before it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any
from uuid import UUID

from hetuflow_core import ids
from hetuflow_core.jobfile.flow_references import OUTPUT
from hetuflow_server.flows import store
from hetuflow_server.flows.definitions import FlowDefinition
from hetuflow_server.flows.store import LockedRun
from hetuflow_server.postgres.database import Connection

Facts = dict[str, dict[str, Any]]


async def facts_of(
    connection: Connection, run: LockedRun, shape: FlowDefinition, paths: Iterable[tuple[str, ...]]
) -> Facts:
    """Return {node: its facts} for every node that is referred to."""
    wanted = sorted({path[0] for path in paths if path[0] in shape.nodes})
    if not wanted:
        return {}
    with_output = {path[0] for path in paths if len(path) == 1 or path[1] == OUTPUT}
    facts: Facts = {}
    for name, row in (await store.nodes(connection, run.id, wanted)).items():
        output = row.output
        if name in with_output and shape.nodes[name].is_spread:
            found = await _item_outputs(connection, run.id, run.retry_of, name)
            output = [found.get(place) for place in range(row.total)]
        facts[name] = {
            "status": row.status.value,
            OUTPUT: output,
            "total": row.total,
            "succeeded": row.counts.succeeded,
            "failed": row.counts.failed,
            "skipped": row.counts.skipped,
        }
    return facts


async def _item_outputs(
    connection: Connection, run: UUID, retry_of: UUID | None, node: str
) -> dict[int, Any]:
    """With what the runs did that this one builds upon."""
    first, last = ids.range_of([run])
    found = await store.item_outputs(connection, run, node, first, last)
    if retry_of is None:
        return found
    before = await store.retry_of(connection, retry_of)
    return {**await _item_outputs(connection, retry_of, before, node), **found}


def kept(facts: Mapping[str, Mapping[str, Any]], paths: Iterable[tuple[str, ...]]) -> Facts:
    """Return as much of the facts as is referred to: a task keeps it, and an output may be large."""
    listed = list(paths)
    return {
        name: {
            **facts[name],
            OUTPUT: _pruned(facts[name][OUTPUT], [path[1:] for path in listed if path[0] == name]),
        }
        for name in {path[0] for path in listed}
        if name in facts
    }


def _pruned(output: Any, paths: list[tuple[str, ...]]) -> Any:
    keys = {path[1] if len(path) > 1 else None for path in paths if not path or path[0] == OUTPUT}
    if None in keys or any(not path for path in paths) or not isinstance(output, dict):
        return output if keys else None
    return {key: output[key] for key in keys if key is not None and key in output}
