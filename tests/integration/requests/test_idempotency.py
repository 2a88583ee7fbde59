"""Requests with an idempotency key: effect and answer in one transaction, whatever fails in between."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from hetuflow_core.access.permissions import Permission
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Conflict, Invalid, NotFound, Underway
from hetuflow_core.resources.limits import LimitRequest
from hetuflow_server.cluster.hints import Hints, Topic, namespace_topic
from hetuflow_server.limits.service import Limits
from hetuflow_server.postgres.database import Database
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.idempotency import IdempotentRequest, IdempotentRequests, KeyedRequest
from hetuflow_server.requests.idempotency_store import KeptAnswer
from hetuflow_server.requests.principal import Principal
from hetuflow_server.upkeep import expiry_store
from tests.support.queue.engine import WHO, Engine
from tests.support.requests import audited_request

ANSWER = (201, [("content-type", "application/json"), ("etag", '"1"')], b'{"max": 1}')
ME = UUID(int=7)


def request_context(namespace: str | None = None, id_: UUID = ME) -> RequestContext:
    caller = Principal.with_role("ann", Role.EDITOR, namespace, id_=id_)
    return audited_request("create_limit", caller.needing(Permission.LIMITS_WRITE))


def request(body: bytes = b"{}", key: str = "k") -> KeyedRequest:
    return KeyedRequest(key, [b"POST", b"/api/v1/limits", b"", body])


@pytest.fixture
def idempotent_requests(scheduling: Engine) -> IdempotentRequests:
    return IdempotentRequests(scheduling.database, ["new" * 16, "old" * 16])


@pytest.fixture
def limits(scheduling: Engine) -> Limits:
    return Limits(scheduling.database, scheduling.hints)


async def begun(
    idempotent_requests: IdempotentRequests, context: RequestContext, asked: KeyedRequest | None = None
) -> IdempotentRequest:
    idempotent_request = await idempotent_requests.begin(context, asked or request())
    assert isinstance(idempotent_request, IdempotentRequest)
    return idempotent_request


def kept(engine: Engine) -> list[dict[str, Any]]:
    return engine.all("SELECT * FROM sched_request_key ORDER BY caller_id, key")


def limit_names(engine: Engine) -> list[str]:
    return [row["scope"] for row in engine.all("SELECT scope FROM sched_limit WHERE named ORDER BY scope")]


async def test_effect_audit_entry_and_answer_are_one_transaction(
    scheduling: Engine, idempotent_requests: IdempotentRequests, limits: Limits
) -> None:
    context = request_context()
    idempotent_request = await begun(idempotent_requests, context)
    await limits.create(context, LimitRequest("tool:a", 1))
    # Nobody else sees any of it yet: what a crash would leave now is nothing.
    assert (limit_names(scheduling), kept(scheduling)) == ([], [])
    await idempotent_request.keep(*ANSWER)
    assert len(limit_names(scheduling)) == 1
    (row,) = kept(scheduling)
    assert (row["caller_id"], row["key"], row["namespaces"]) == (ME, "k", ["default"])
    (entry,) = scheduling.all("SELECT action, target_kind FROM sched_audit")
    assert entry == {"action": "create_limit", "target_kind": "limit"}

    again = await idempotent_requests.begin(request_context(), request())
    assert isinstance(again, KeptAnswer)
    assert (again.status, list(again.headers), again.body) == ANSWER


async def test_what_fails_leaves_nothing(
    scheduling: Engine, idempotent_requests: IdempotentRequests, limits: Limits
) -> None:
    await limits.create(WHO, LimitRequest("tool:a", 1))
    context = request_context()
    idempotent_request = await begun(idempotent_requests, context)
    await limits.create(context, LimitRequest("tool:b", 1))
    with pytest.raises(Conflict):
        await limits.create(context, LimitRequest("tool:a", 2))
    await idempotent_request.abandon()
    await idempotent_request.abandon()
    assert len(limit_names(scheduling)) == 1
    assert kept(scheduling) == []
    assert scheduling.all("SELECT * FROM sched_audit") == []
    # The key is free again.
    context = request_context()
    await (await begun(idempotent_requests, context)).abandon()


async def test_a_part_that_fails_takes_only_itself_back(
    scheduling: Engine, idempotent_requests: IdempotentRequests, limits: Limits
) -> None:
    await limits.create(WHO, LimitRequest("tool:a", 1))
    context = request_context()
    idempotent_request = await begun(idempotent_requests, context)
    with pytest.raises(Conflict):
        await limits.create(context, LimitRequest("tool:a", 2))
    await limits.create(context, LimitRequest("tool:b", 1))
    await idempotent_request.keep(*ANSWER)
    assert len(limit_names(scheduling)) == 2
    assert len(scheduling.all("SELECT * FROM sched_audit")) == 1


async def test_a_dry_run_is_kept_and_writes_no_entry(
    scheduling: Engine, idempotent_requests: IdempotentRequests, database_url: str
) -> None:
    context = request_context()
    idempotent_request = await begun(idempotent_requests, context)
    async with scheduling.database.transaction(context) as connection:
        context.audit.note_change("namespace", "gone")
        await connection.execute("INSERT INTO sched_namespace (name) VALUES ('gone')")
        await connection.rollback()
    await idempotent_request.keep(*ANSWER)
    assert scheduling.all("SELECT * FROM sched_namespace WHERE name = 'gone'") == []
    assert scheduling.all("SELECT * FROM sched_audit") == []
    assert len(kept(scheduling)) == 1


async def test_news_are_given_after_the_commit_and_not_without_one(
    scheduling: Engine, idempotent_requests: IdempotentRequests
) -> None:
    told: list[Any] = []
    hints = Hints()

    def listen(topics: Collection[Topic], *, relayed: bool) -> None:
        assert not relayed
        told.extend(topics)

    hints.listen(listen)
    context = request_context()
    idempotent_request = await begun(idempotent_requests, context)
    hints.give([namespace_topic(1)], context)
    assert told == []
    await idempotent_request.keep(*ANSWER)
    assert told == [namespace_topic(1)]
    hints.give([namespace_topic(2)], context)
    assert told[1:] == [namespace_topic(2)]
    idempotent_request = await begun(idempotent_requests, context, request(key="other"))
    hints.give([namespace_topic(3)], context)
    await idempotent_request.abandon()
    assert len(told) == 2


async def test_one_in_flight_is_told_of_at_once_and_only_to_its_caller(
    scheduling: Engine, idempotent_requests: IdempotentRequests
) -> None:
    context = request_context()
    idempotent_request = await begun(idempotent_requests, context)
    with pytest.raises(Underway, match="being answered") as caught:
        await idempotent_requests.begin(request_context(), request())
    assert (caught.value.code, caught.value.retry_after) == ("idempotency_key.in_flight", 1)
    other = await idempotent_requests.begin(request_context(id_=uuid4()), request())
    assert isinstance(other, IdempotentRequest)
    await other.abandon()
    await idempotent_request.keep(*ANSWER)
    nobody = await idempotent_requests.begin(request_context(id_=uuid4()), request())
    assert isinstance(nobody, IdempotentRequest)
    await nobody.abandon()


async def test_another_body_and_bad_keys_are_refused(
    scheduling: Engine, idempotent_requests: IdempotentRequests
) -> None:
    context = request_context()
    await (await begun(idempotent_requests, context)).keep(*ANSWER)
    with pytest.raises(Invalid) as caught:
        await idempotent_requests.begin(request_context(), request(b"[]"))
    assert caught.value.code == "idempotency_key.reused"
    for key in ("", "k" * 256, "a\x7fb"):
        with pytest.raises(Invalid) as caught:
            await idempotent_requests.begin(request_context(), request(key=key))
        assert caught.value.code == "idempotency_key.invalid"


async def test_a_new_server_key_knows_what_was_kept_under_the_old(
    scheduling: Engine, idempotent_requests: IdempotentRequests
) -> None:
    context = request_context()
    await (await begun(IdempotentRequests(scheduling.database, ["old" * 16]), context)).keep(*ANSWER)
    assert isinstance(await idempotent_requests.begin(request_context(), request()), KeptAnswer)


async def test_who_has_lost_a_namespace_gets_no_answer_from_there(
    scheduling: Engine, idempotent_requests: IdempotentRequests, limits: Limits
) -> None:
    context = request_context()
    idempotent_request = await begun(idempotent_requests, context)
    await limits.create(context, LimitRequest("tool:a", 1))
    await idempotent_request.keep(*ANSWER)
    with pytest.raises(NotFound, match="no namespace default"):
        await idempotent_requests.begin(request_context("elsewhere"), request())


async def test_answers_are_kept_for_a_day(
    scheduling: Engine, idempotent_requests: IdempotentRequests
) -> None:
    context = request_context()
    await (await begun(idempotent_requests, context)).keep(*ANSWER)
    scheduling.rows.execute(
        "UPDATE sched_request_key SET expires_at = clock_timestamp() - interval '1 second'"
    )
    context = request_context()
    await (await begun(idempotent_requests, context, request(b"[]"))).keep(*ANSWER)
    (row,) = kept(scheduling)
    assert row["expires_at"] > datetime.now(UTC)
    scheduling.rows.execute(
        "UPDATE sched_request_key SET expires_at = clock_timestamp() - interval '1 second'"
    )
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    await expiry_store.delete_expired(scheduling.database, long_ago, long_ago)
    assert kept(scheduling) == []


async def test_a_lost_connection_is_told_as_such(
    scheduling: Engine, idempotent_requests: IdempotentRequests
) -> None:
    database: Database = scheduling.database
    context = request_context()
    idempotent_request = await begun(idempotent_requests, context)
    with pytest.raises(Exception, match="cannot be reached") as caught:
        async with database.transaction(context) as connection:
            await connection.execute("SELECT pg_terminate_backend(pg_backend_pid())")
    assert getattr(caught.value, "code", None) == "database.unreachable"
    await idempotent_request.abandon()
    async with database.transaction(context) as connection:
        assert (await connection.execute("SELECT 1")).scalar_one() == 1
