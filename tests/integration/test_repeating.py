"""Requests with an idempotency key: effect and answer in one transaction, whatever fails in between."""

from __future__ import annotations

from collections.abc import Collection
from datetime import UTC, datetime
from typing import Any
from uuid import UUID, uuid4

import pytest

from hetuflow_core.errors import Conflict, Invalid, NotFound, Underway
from hetuflow_core.permissions import Permission
from hetuflow_core.resources import LimitRequest
from hetuflow_core.roles import Role
from hetuflow_server.services.limits import Limits
from hetuflow_server.services.principals import Principal
from hetuflow_server.services.repeating import KeyedRequest, Repeating, Undertaking
from hetuflow_server.store import expiry
from hetuflow_server.store.database import Database
from hetuflow_server.store.deeds import Deed, note_change, opened
from hetuflow_server.store.request_keys import KeptAnswer
from hetuflow_server.stream.hints import Hints, Topic, namespace_topic
from tests.support.engine import WHO, Engine

ANSWER = (201, [("content-type", "application/json"), ("etag", '"1"')], b'{"max": 1}')
ME = UUID(int=7)


def caller(namespace: str | None = None, id_: UUID = ME) -> Principal:
    return Principal.with_role("ann", Role.EDITOR, namespace, id_=id_).needing(Permission.LIMITS_WRITE)


def deed() -> Deed:
    return Deed(datetime.now(UTC), None, "req-1", mutates=True, action="create_limit", target="/limits")


def request(body: bytes = b"{}", key: str = "k") -> KeyedRequest:
    return KeyedRequest(key, [b"POST", b"/api/v1/limits", b"", body])


@pytest.fixture
def repeating(scheduling: Engine) -> Repeating:
    return Repeating(scheduling.database, ["new" * 16, "old" * 16])


@pytest.fixture
def limits(scheduling: Engine) -> Limits:
    return Limits(scheduling.database, scheduling.hints)


async def begun(repeating: Repeating, doing: Deed, asked: KeyedRequest | None = None) -> Undertaking:
    undertaking = await repeating.begin(caller(), asked or request(), doing)
    assert isinstance(undertaking, Undertaking)
    return undertaking


def kept(engine: Engine) -> list[dict[str, Any]]:
    return engine.all("SELECT * FROM sched_request_key ORDER BY caller_id, key")


def limit_names(engine: Engine) -> list[str]:
    return [row["scope"] for row in engine.all("SELECT scope FROM sched_limit WHERE named ORDER BY scope")]


async def test_effect_audit_entry_and_answer_are_one_transaction(
    scheduling: Engine, repeating: Repeating, limits: Limits
) -> None:
    with opened(deed()) as doing:
        undertaking = await begun(repeating, doing)
        await limits.create(WHO, LimitRequest("tool:a", 1))
        # Nobody else sees any of it yet: what a crash would leave now is nothing.
        assert (limit_names(scheduling), kept(scheduling)) == ([], [])
        await undertaking.keep(*ANSWER)
    assert len(limit_names(scheduling)) == 1
    (row,) = kept(scheduling)
    assert (row["caller_id"], row["key"], row["namespaces"]) == (ME, "k", ["default"])
    (entry,) = scheduling.all("SELECT action, target_kind FROM sched_audit")
    assert entry == {"action": "create_limit", "target_kind": "limit"}

    again = await repeating.begin(caller(), request(), deed())
    assert isinstance(again, KeptAnswer)
    assert (again.status, list(again.headers), again.body) == ANSWER


async def test_what_fails_leaves_nothing(scheduling: Engine, repeating: Repeating, limits: Limits) -> None:
    await limits.create(WHO, LimitRequest("tool:a", 1))
    with opened(deed()) as doing:
        undertaking = await begun(repeating, doing)
        await limits.create(WHO, LimitRequest("tool:b", 1))
        with pytest.raises(Conflict):
            await limits.create(WHO, LimitRequest("tool:a", 2))
        await undertaking.abandon()
        await undertaking.abandon()
    assert len(limit_names(scheduling)) == 1
    assert kept(scheduling) == []
    assert scheduling.all("SELECT * FROM sched_audit") == []
    # The key is free again.
    with opened(deed()) as doing:
        await (await begun(repeating, doing)).abandon()


async def test_a_part_that_fails_takes_only_itself_back(
    scheduling: Engine, repeating: Repeating, limits: Limits
) -> None:
    await limits.create(WHO, LimitRequest("tool:a", 1))
    with opened(deed()) as doing:
        undertaking = await begun(repeating, doing)
        with pytest.raises(Conflict):
            await limits.create(WHO, LimitRequest("tool:a", 2))
        await limits.create(WHO, LimitRequest("tool:b", 1))
        await undertaking.keep(*ANSWER)
    assert len(limit_names(scheduling)) == 2
    assert len(scheduling.all("SELECT * FROM sched_audit")) == 1


async def test_a_dry_run_is_kept_and_is_no_deed(
    scheduling: Engine, repeating: Repeating, database_url: str
) -> None:
    with opened(deed()) as doing:
        undertaking = await begun(repeating, doing)
        async with scheduling.database.transaction() as connection:
            note_change("namespace", "gone")
            await connection.exec_driver_sql("INSERT INTO sched_namespace (name) VALUES ('gone')")
            await connection.rollback()
        await undertaking.keep(*ANSWER)
    assert scheduling.all("SELECT * FROM sched_namespace WHERE name = 'gone'") == []
    assert scheduling.all("SELECT * FROM sched_audit") == []
    assert len(kept(scheduling)) == 1


async def test_news_are_given_after_the_commit_and_not_without_one(
    scheduling: Engine, repeating: Repeating
) -> None:
    told: list[Any] = []
    hints = Hints()

    def listen(topics: Collection[Topic], *, relayed: bool) -> None:
        assert not relayed
        told.extend(topics)

    hints.listen(listen)
    with opened(deed()) as doing:
        undertaking = await begun(repeating, doing)
        hints.give([namespace_topic(1)])
        assert told == []
        await undertaking.keep(*ANSWER)
        assert told == [namespace_topic(1)]
        hints.give([namespace_topic(2)])
        assert told[1:] == [namespace_topic(2)]
        undertaking = await begun(repeating, doing, request(key="other"))
        hints.give([namespace_topic(3)])
        await undertaking.abandon()
    assert len(told) == 2


async def test_one_in_flight_is_told_of_at_once_and_only_to_its_caller(
    scheduling: Engine, repeating: Repeating
) -> None:
    with opened(deed()) as doing:
        undertaking = await begun(repeating, doing)
        with pytest.raises(Underway, match="being answered") as caught:
            await repeating.begin(caller(), request(), deed())
        assert (caught.value.code, caught.value.retry_after) == ("idempotency_key.in_flight", 1)
        stranger = deed()
        other = await repeating.begin(caller(id_=uuid4()), request(), stranger)
        assert isinstance(other, Undertaking)
        await other.abandon()
        await undertaking.keep(*ANSWER)
    nobody = await repeating.begin(caller(id_=uuid4()), request(), stranger)
    assert isinstance(nobody, Undertaking)
    await nobody.abandon()


async def test_another_body_and_bad_keys_are_refused(scheduling: Engine, repeating: Repeating) -> None:
    with opened(deed()) as doing:
        await (await begun(repeating, doing)).keep(*ANSWER)
    with pytest.raises(Invalid) as caught:
        await repeating.begin(caller(), request(b"[]"), deed())
    assert caught.value.code == "idempotency_key.reused"
    for key in ("", "k" * 256, "a\x7fb"):
        with pytest.raises(Invalid) as caught:
            await repeating.begin(caller(), request(key=key), deed())
        assert caught.value.code == "idempotency_key.invalid"


async def test_a_new_server_key_knows_what_was_kept_under_the_old(
    scheduling: Engine, repeating: Repeating
) -> None:
    with opened(deed()) as doing:
        await (await begun(Repeating(scheduling.database, ["old" * 16]), doing)).keep(*ANSWER)
    assert isinstance(await repeating.begin(caller(), request(), deed()), KeptAnswer)


async def test_who_has_lost_a_namespace_gets_no_answer_from_there(
    scheduling: Engine, repeating: Repeating, limits: Limits
) -> None:
    with opened(deed()) as doing:
        undertaking = await begun(repeating, doing)
        await limits.create(WHO, LimitRequest("tool:a", 1))
        await undertaking.keep(*ANSWER)
    with pytest.raises(NotFound, match="no namespace default"):
        await repeating.begin(caller("elsewhere"), request(), deed())


async def test_answers_are_kept_for_a_day(scheduling: Engine, repeating: Repeating) -> None:
    with opened(deed()) as doing:
        await (await begun(repeating, doing)).keep(*ANSWER)
    scheduling.rows.execute(
        "UPDATE sched_request_key SET expires_at = clock_timestamp() - interval '1 second'"
    )
    with opened(deed()) as doing:
        await (await begun(repeating, doing, request(b"[]"))).keep(*ANSWER)
    (row,) = kept(scheduling)
    assert row["expires_at"] > datetime.now(UTC)
    scheduling.rows.execute(
        "UPDATE sched_request_key SET expires_at = clock_timestamp() - interval '1 second'"
    )
    long_ago = datetime(2000, 1, 1, tzinfo=UTC)
    await expiry.delete_expired(scheduling.database, long_ago, long_ago)
    assert kept(scheduling) == []


async def test_a_lost_connection_is_told_as_such(scheduling: Engine, repeating: Repeating) -> None:
    database: Database = scheduling.database
    with opened(deed()) as doing:
        undertaking = await begun(repeating, doing)
        with pytest.raises(Exception, match="cannot be reached") as caught:
            async with database.transaction() as connection:
                await connection.exec_driver_sql("SELECT pg_terminate_backend(pg_backend_pid())")
        assert getattr(caught.value, "code", None) == "database.unreachable"
        await undertaking.abandon()
        async with database.transaction() as connection:
            assert (await connection.exec_driver_sql("SELECT 1")).scalar_one() == 1
