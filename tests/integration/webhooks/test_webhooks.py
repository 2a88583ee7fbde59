"""Webhooks on a database and with real receivers: announced with the end, delivered, retried, given up."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from datetime import timedelta
from typing import Any
from uuid import UUID

import pytest

from hetuflow_core.access.roles import Role
from hetuflow_core.addresses import parse_networks
from hetuflow_core.errors import Conflict, Invalid, NotFound, Unauthenticated
from hetuflow_core.resources.apply import ApplyAction
from hetuflow_core.resources.webhooks import WebhookRequest
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.states import InstanceStatus
from hetuflow_server.app.schedule_edits import schedule_edits
from hetuflow_server.apply.documents import DocumentApplier
from hetuflow_server.events.service import Events
from hetuflow_server.queue.rows import Ending
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.secrets.keyring import Keyring
from hetuflow_server.secrets.service import Secrets
from hetuflow_server.webhooks.delivery import WebhookClient
from hetuflow_server.webhooks.on_task_end import WebhooksOnTaskEnd
from hetuflow_server.webhooks.sender import WebhookSender
from hetuflow_server.webhooks.service import Webhooks
from hetuflow_server.webhooks.signatures import FORMER, sign, verify
from tests.support.http.webserver import WebServer, reply, serving_web
from tests.support.queue.engine import WHO, Engine

SECRET = "hunter22-of-hooks"


class Hooks:
    def __init__(self, engine: Engine) -> None:
        self.engine, self.clock = engine, SystemClock()
        self.keyring = Keyring(["k" * 40])
        self.secrets = Secrets(engine.database, self.keyring, self.clock)
        self.webhooks_on_task_end = engine.task_end_parts.webhooks
        self.webhooks = self.webhooks_of(self.webhooks_on_task_end)
        self.applying = DocumentApplier(
            engine.database, self.clock, schedule_edits(), self.secrets, self.webhooks
        )

    def webhooks_of(self, webhooks_on_task_end: WebhooksOnTaskEnd) -> Webhooks:
        """The service of the server with this end hook."""
        database = self.engine.database
        return Webhooks(database, self.keyring, webhooks_on_task_end, self.clock, Events(database))

    def webhook_sender(self, *allowed: str) -> WebhookSender:
        post = WebhookClient(parse_networks(allowed))
        return WebhookSender(self.engine.database, self.webhooks, post, self.clock, random.Random(0))

    async def set(self, name: str, **asked: Any) -> None:
        await self.secrets.set(WHO, "default", "signing", SECRET)
        await self.webhooks.set(WHO, "default", name, WebhookRequest("signing", **asked))

    async def finish(self, job: UUID, status: InstanceStatus = InstanceStatus.SUCCEEDED) -> UUID:
        task = await self.engine.run(job)
        instance = self.engine.one("SELECT id FROM sched_task_instance WHERE task_id = %s", task)["id"]
        ended = self.engine.claim(instance)
        await self.engine.settle(Ending(ended.instance_id, ended.token, status))
        return task

    def waiting(self) -> list[dict[str, Any]]:
        return self.engine.all("SELECT * FROM sched_webhook_delivery ORDER BY created_at")

    def make_due(self) -> None:
        self.engine.rows.execute(
            "UPDATE sched_webhook_delivery SET next_at = now() WHERE next_at IS NOT NULL"
        )

    def emitted(self) -> list[dict[str, Any]]:
        return self.engine.all("SELECT name, payload, source, created_by FROM sched_event")


@pytest.fixture
def hooks(scheduling: Engine) -> Hooks:
    return Hooks(scheduling)


@pytest.fixture
def web() -> Iterator[WebServer]:
    routes = {
        "/ok": reply(204),
        "/no": reply(500, b"busy"),
        "/gone": reply(410),
        "/moved": reply(302, Location="http://169.254.169.254/"),
    }
    with serving_web(routes) as server:
        yield server


async def test_ends_are_announced_to_whom_they_concern(hooks: Hooks) -> None:
    job = await hooks.engine.apply(name="told")
    other = await hooks.engine.apply(name="untold")
    await hooks.finish(job)
    assert hooks.waiting() == []  # nobody asked, and nobody was looked for
    await hooks.set("all", url="https://a.example/")
    await hooks.set("failures", url="https://b.example/", events=["failed"], jobs=["told"])
    await hooks.set("off", url="https://c.example/", enabled=False)
    await hooks.set("inbound", receives={"event": "x.y"})
    succeeded, failed = await hooks.finish(job), await hooks.finish(job, InstanceStatus.FAILED)
    elsewhere = await hooks.finish(other, InstanceStatus.FAILED)
    told = hooks.engine.all(
        "SELECT w.name, d.task_id, d.event FROM sched_webhook_delivery d "
        "JOIN sched_webhook w ON w.id = d.webhook_id"
    )
    assert {(row["name"], row["task_id"], row["event"]) for row in told} == {
        ("all", succeeded, "succeeded"),
        ("all", failed, "failed"),
        ("all", elsewhere, "failed"),
        ("failures", failed, "failed"),
    }


async def test_another_server_learns_of_webhooks_by_looking(hooks: Hooks) -> None:
    hooks.webhooks = hooks.webhooks_of(WebhooksOnTaskEnd())
    await hooks.set("all", url="https://a.example/")
    job = await hooks.engine.apply(name="told")
    await hooks.finish(job)
    assert hooks.waiting() == []
    await hooks.webhooks_on_task_end.refresh(hooks.engine.database)
    await hooks.finish(job)
    assert len(hooks.waiting()) == 1


async def test_a_message_is_signed_and_delivered_once(hooks: Hooks, web: WebServer) -> None:
    await hooks.set("all", url=f"{web.url}/ok")
    task = await hooks.finish(await hooks.engine.apply(name="told"))
    webhook_sender = hooks.webhook_sender("127.0.0.0/8")
    assert await webhook_sender.run_once() == 1
    assert await webhook_sender.run_once() == 0
    (asked,) = web.asked
    said = json.loads(asked.body)
    assert (said["event"], said["task_id"], said["job"]) == ("task.succeeded", str(task), "told")
    assert verify(SECRET, asked.body, asked.headers, hooks.clock.now())
    assert asked.headers["host"] == f"127.0.0.1:{web.port}"
    assert hooks.waiting() == []


async def test_what_fails_is_tried_again_and_given_up_in_the_end(hooks: Hooks, web: WebServer) -> None:
    await hooks.set("all", url=f"{web.url}/no")
    await hooks.finish(await hooks.engine.apply(name="told"))
    webhook_sender = hooks.webhook_sender("127.0.0.0/8")
    assert await webhook_sender.run_once() == 1
    (row,) = hooks.waiting()
    assert (row["attempts"], row["last_status"], row["last_error"]) == (1, 500, "It answered 500.")
    assert row["next_at"] > hooks.engine.now()
    assert await webhook_sender.run_once() == 0
    for _ in range(11):
        hooks.make_due()
        await webhook_sender.run_once()
    (row,) = hooks.waiting()
    assert (row["attempts"], row["next_at"]) == (12, None)
    dead = await hooks.webhooks.deliveries(WHO, "default", "all", state="dead", after=None, limit=10)
    assert [one.state for one in dead] == ["dead"]
    assert await hooks.webhooks.send_again(WHO, "default", "all", dead[0].id) == 1
    assert await webhook_sender.run_once() == 1
    assert len(web.asked) == 13


@pytest.mark.parametrize(
    ("path", "error"),
    [("/gone", "It answered 410."), ("/moved", "It points to http://169.254.169.254/")],
)
async def test_moves_are_not_followed_and_what_is_gone_is_let_be(
    hooks: Hooks, web: WebServer, path: str, error: str
) -> None:
    await hooks.set("all", url=f"{web.url}{path}")
    await hooks.finish(await hooks.engine.apply(name="told"))
    await hooks.webhook_sender("127.0.0.0/8").run_once()
    (row,) = hooks.waiting()
    assert row["last_error"].startswith(error)
    assert (row["next_at"] is None) == (path == "/gone")
    assert len(web.asked) == 1


async def test_servers_do_not_connect_to_their_own_networks(hooks: Hooks, web: WebServer) -> None:
    await hooks.set("all", url=f"{web.url}/ok")
    await hooks.finish(await hooks.engine.apply(name="told"))
    await hooks.webhook_sender().run_once()
    assert web.asked == []
    assert "webhooks.allow" in hooks.waiting()[0]["last_error"]


async def test_what_a_dead_server_took_is_due_again(hooks: Hooks, web: WebServer) -> None:
    await hooks.set("all", url=f"{web.url}/ok")
    await hooks.finish(await hooks.engine.apply(name="told"))
    taken = hooks.webhook_sender("127.0.0.0/8")
    taken._write_down = lambda _: _never()  # type: ignore[assignment, method-assign, return-value]
    with pytest.raises(RuntimeError):
        await taken.run_once()
    assert await hooks.webhook_sender("127.0.0.0/8").run_once() == 0
    hooks.make_due()
    assert await hooks.webhook_sender("127.0.0.0/8").run_once() == 1
    ids = {json.loads(one.body)["id"] for one in web.asked}
    assert (len(web.asked), len(ids)) == (2, 1)


async def _never() -> None:
    raise RuntimeError("the server has died")


async def receive(hooks: Hooks, body: bytes, headers: dict[str, str], name: str = "in") -> Any:
    return await hooks.webhooks.receive(RequestContext.internal(), "default", name, headers, body)


def without_id(headers: dict[str, str]) -> dict[str, str]:
    return {FORMER: headers[FORMER]}


async def test_a_signed_message_becomes_an_event_once(hooks: Hooks) -> None:
    await hooks.set("in", receives={"event": "file.uploaded"})
    body = b'{"size": 3}'
    headers = without_id(sign(SECRET, "msg_1", body.decode(), hooks.clock.now()))
    receipt = await receive(hooks, body, headers)
    assert receipt.event == "file.uploaded"
    (event,) = hooks.emitted()
    assert (event["name"], event["payload"]) == ("file.uploaded", {"size": 3})
    assert (event["source"], event["created_by"]) == ("webhook", "in")
    with pytest.raises(Conflict) as replayed:
        await receive(hooks, body, headers)
    assert replayed.value.code == "webhook.replayed"
    assert len(hooks.emitted()) == 1


async def test_a_message_sent_again_under_its_id_is_answered_with_the_same_event(hooks: Hooks) -> None:
    await hooks.set("in", receives={"event": "file.uploaded"})
    first = await receive(hooks, b"{}", sign(SECRET, "msg_1", "{}", hooks.clock.now()))
    later = hooks.clock.now() + timedelta(minutes=1)
    again = await receive(hooks, b"{}", sign(SECRET, "msg_1", "{}", later))
    assert again == first
    other = await receive(hooks, b"{}", sign(SECRET, "msg_2", "{}", hooks.clock.now()))
    assert other != first
    assert len(hooks.emitted()) == 2


@pytest.mark.parametrize("name", ["in", "nowhere", "out"])
async def test_strangers_learn_nothing(hooks: Hooks, name: str) -> None:
    await hooks.set("in", receives={"event": "file.uploaded"})
    await hooks.set("out", url="https://a.example/")
    forged = sign("another-secret", "msg_1", "{}", hooks.clock.now())
    with pytest.raises(Unauthenticated) as refused:
        await receive(hooks, b"{}", forged, name)
    assert refused.value.code == "webhook.forged"
    if name != "in":
        good = sign(SECRET, "msg_1", "{}", hooks.clock.now())
        with pytest.raises(Unauthenticated):
            await receive(hooks, b"{}", good, name)
    assert hooks.emitted() == []


async def test_a_message_that_is_no_json_is_not_taken(hooks: Hooks) -> None:
    await hooks.set("in", receives={"event": "file.uploaded"})
    headers = sign(SECRET, "msg_1", "{", hooks.clock.now())
    with pytest.raises(Invalid):
        await receive(hooks, b"{", headers)
    assert hooks.engine.all("SELECT FROM sched_webhook_receipt") == []


async def test_documents_make_webhooks(hooks: Hooks) -> None:
    await hooks.secrets.set(WHO, "default", "signing", SECRET)
    document = {"kind": "webhook", "name": "chat", "url": "https://a.example/", "secret": "signing"}

    async def apply(**said: Any) -> ApplyAction:
        result = await hooks.applying.apply(WHO, [{**document, **said}], dry_run=False)
        return result.items[0].action

    assert await apply() is ApplyAction.CREATED
    assert await apply() is ApplyAction.UNCHANGED
    assert await apply(events=["failed"]) is ApplyAction.CHANGED
    with pytest.raises(Invalid, match="no secret"):
        await apply(secret="nowhere")
    shown = await hooks.webhooks.webhook(WHO, "default", "chat")
    assert (shown.events, shown.secret) == (["failed"], "signing")
    with pytest.raises(Conflict, match="used by"):
        await hooks.secrets.delete(WHO, "default", "signing")
    stranger = RequestContext.internal(Principal.with_role("stranger", Role.ADMIN, "theirs"))
    with pytest.raises(NotFound):
        await hooks.webhooks.delete(stranger, "default", "chat")
    await hooks.webhooks.delete(WHO, "default", "chat")
    await hooks.secrets.delete(WHO, "default", "signing")
