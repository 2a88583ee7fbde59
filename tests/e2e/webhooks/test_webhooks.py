"""Webhooks of a whole system: a task that ends is told to a real receiver, signed, and once."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from uuid import uuid4

from hetuflow_server.webhooks.signatures import verify
from tests.e2e.conftest import System
from tests.support.http.webserver import reply, serving_web
from tests.support.waiting import wait_until

KEY = "hunter22-of-receivers"


def test_a_task_that_fails_is_told_to_who_wants_to_know(system: System) -> None:
    name = f"hook-{uuid4().hex[:8]}"
    job = system.apply(run={"script": "exit 3"})
    quiet = system.apply(run={"command": ["true"]})
    with serving_web({"/ended": reply(204)}) as receiver:
        system.client.set_secret("default", name, KEY)
        system.client.set_webhook(
            "default",
            name,
            secret=name,
            url=f"{receiver.url}/ended",
            events=["failed"],
            jobs=[job.name, quiet.name],
        )
        task = system.client.wait(system.client.run(job.id).id, timeout=60)
        system.client.wait(system.client.run(quiet.id).id, timeout=60)
        wait_until(lambda: receiver.asked, timeout=60, what="the message")
        wait_until(
            lambda: not list(system.client.webhook_deliveries("default", name)),
            timeout=60,
            what="its receipt",
        )
        system.client.delete_webhook("default", name)
    (message,) = receiver.asked
    told = json.loads(message.body)
    assert (message.method, told["event"], told["task_id"]) == ("POST", "task.failed", str(task.id))
    assert (told["job"], told["exit_code"]) == (job.name, 3)
    assert verify(KEY, message.body, message.headers, datetime.now(UTC))
