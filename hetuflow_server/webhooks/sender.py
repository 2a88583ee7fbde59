"""Sends webhook messages about tasks that have ended, until they are accepted or given up.

Any server's loop: a delivery that was taken is not due again until its taker must have ended, so two servers
do not make the same one, and one that dies leaves it to the others. Messages may come twice, never not at
all; `id` tells.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Sequence
from dataclasses import asdict
from datetime import timedelta
from typing import Any

import msgspec
import structlog

from hetuflow_core.errors import HetuflowError, Invalid
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.postgres.database import Connection, Database, Lane
from hetuflow_server.webhooks import signatures, store
from hetuflow_server.webhooks.delivery import TOTAL_SECONDS, PostResult, WebhookClient
from hetuflow_server.webhooks.redelivery_delays import is_final, next_pause
from hetuflow_server.webhooks.service import Webhooks
from hetuflow_server.webhooks.store import DueDelivery, TaskFacts

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.webhooks")

_AT_ONCE = 20
_HOLD = timedelta(seconds=2 * TOTAL_SECONDS + 10)
_LONGEST_ERROR = 500


class WebhookSender:
    def __init__(
        self, database: Database, webhooks: Webhooks, post: WebhookClient, clock: Clock, rng: random.Random
    ) -> None:
        self._database = database
        self._webhooks = webhooks
        self._post = post
        self._clock = clock
        self._rng = rng

    async def run_once(self) -> int:
        """Make the deliveries that are due, at most so many at a time."""
        async with self._database.batched_reading(lane=Lane.INDEX_ORDER) as connection:
            if not await store.any_due(connection):
                return 0
        async with self._database.transaction() as connection:
            due = await store.take_due(connection, hold=_HOLD, limit=_AT_ONCE)
            if not due:
                return 0
            facts = await store.task_facts(connection, [one.task_id for one in due])
            keys = {
                (one.namespace_id, one.secret): await self._key(connection, one)
                for one in {(each.namespace_id, each.secret): each for each in due}.values()
            }
        results = await asyncio.gather(
            *(self._send(one, facts.get(one.task_id), keys[one.namespace_id, one.secret]) for one in due)
        )
        await self._write_down(list(zip(due, results, strict=True)))
        return len(due)

    async def _key(self, connection: Connection, due: DueDelivery) -> str | None:
        try:
            return await self._webhooks.secret_of(connection, due.namespace_id, due.secret)
        except HetuflowError as error:
            log.warning("The secret of a webhook cannot be read.", webhook=due.webhook, error=error.message)
            return None

    async def _send(self, due: DueDelivery, task: TaskFacts | None, key: str | None) -> PostResult:
        if task is None:
            return PostResult(status=410)  # it has expired: there is nothing left to tell
        if key is None:
            return PostResult(error=f"The secret {due.secret} is gone: set it again.")
        body = msgspec.json.encode(message(due, task))
        try:
            headers = signatures.sign(key, str(due.id), body.decode(), self._clock.now())
        except Invalid as error:
            return PostResult(error=f"{due.secret}: {error.message}")
        return await self._post.send(due.url, body, headers)

    async def _write_down(self, results: Sequence[tuple[DueDelivery, PostResult]]) -> None:
        async with self._database.transaction() as connection:
            for due, posted in results:
                if posted.good:
                    await store.delivered(connection, due)
                    continue
                final = is_final(posted.status)
                pause = None if final else next_pause(due.attempts, self._rng.random())
                error = posted.error or f"It answered {posted.status}."
                await store.failed(connection, due, pause, posted.status, error[:_LONGEST_ERROR])
                if pause is None:
                    log.warning(
                        "A delivery is given up.",
                        webhook=f"{due.namespace}/{due.webhook}",
                        task_id=str(due.task_id),
                        error=error,
                    )


def message(due: DueDelivery, task: TaskFacts) -> dict[str, Any]:
    """What is told of a task; nothing of what it was given or has said, which may be private."""
    return {
        "id": str(due.id),
        "event": f"task.{due.event}",
        "namespace": due.namespace,
        "task_id": str(due.task_id),
        **asdict(task),
    }
