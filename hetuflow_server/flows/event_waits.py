"""Nodes that wait for an event: the first that comes since they wait and passes their filter ends them."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final
from uuid import UUID

import msgspec

from hetuflow_core.errors import HetuflowError
from hetuflow_core.events import EXPRESSION_NAMES
from hetuflow_core.expressions import Values, condition
from hetuflow_core.states import FlowNodeStatus
from hetuflow_server.events.matching import described
from hetuflow_server.events.matching_store import TakenEvent
from hetuflow_server.flows import event_waits_store as store
from hetuflow_server.flows.definitions import FlowDefinitions
from hetuflow_server.flows.event_waits_store import EventWaitRow
from hetuflow_server.flows.transitions import NodeEnd
from hetuflow_server.postgres.clock import database_time
from hetuflow_server.postgres.database import Connection

_PAGE: Final = 500
# An event is seen when its transaction commits, which may be so long after it was recorded.
_COMMITS_WITHIN: Final = timedelta(minutes=1)


class EventWaits:
    """Remembers up to when events were looked at for each wait; forgetting costs another look at them."""

    def __init__(self, definitions: FlowDefinitions) -> None:
        self._definitions = definitions
        self._looked: dict[tuple[UUID, str], datetime] = {}

    async def answered(
        self, connection: Connection, namespace_id: int, most: int
    ) -> list[tuple[UUID, NodeEnd]]:
        """Return (run, how its node ends) for waits whose event has come."""
        waits = await store.waits(connection, namespace_id, most)
        now = await database_time(connection)
        ends = []
        for wait in waits:
            event = await self._awaited(connection, namespace_id, wait)
            if event is not None:
                told = {"payload": event.payload, "event": described(event)}
                output = msgspec.json.encode(told).decode()
                ends.append((wait.run_id, NodeEnd(wait.node, FlowNodeStatus.SUCCEEDED, output=output)))
            self._looked[wait.run_id, wait.node] = now
        open_ = {(wait.run_id, wait.node) for wait in waits}
        self._looked = {key: at for key, at in self._looked.items() if key in open_}
        return ends

    async def _awaited(
        self, connection: Connection, namespace_id: int, wait: EventWaitRow
    ) -> TakenEvent | None:
        shape = await self._definitions.of(connection, wait.job_id, wait.job_version)
        spec = shape.nodes[wait.node].spec.wait_for_event
        looked = self._looked.get((wait.run_id, wait.node), wait.started_at)
        since = max(wait.started_at, looked - _COMMITS_WITHIN)
        after = store.first_after(since)
        while True:
            page = await store.events_since(connection, namespace_id, wait.event_name, since, after, _PAGE)
            for event in page:
                if spec is None or spec.filter is None or _passes(spec.filter, event):
                    return event
            if len(page) < _PAGE:
                return None
            after = page[-1].id


def _passes(source: str, event: TakenEvent) -> bool:
    """Whether the filter holds; of an event about which it cannot be told, it does not."""
    try:
        values = Values({"payload": event.payload, "event": described(event)})
        return condition(source, EXPRESSION_NAMES).holds(values)
    except HetuflowError:
        return False
