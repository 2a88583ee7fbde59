"""Recording events: over the service and in SQL; keys, faults, rights, listing, replay and retention."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from typing import Any
from uuid import UUID, uuid4

import psycopg
import pytest
from psycopg import sql

from hetuflow_core import ids
from hetuflow_core.access.permissions import Permission
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Denied, Invalid, NotFound, TooLarge
from hetuflow_core.resources.events import EventRequest
from hetuflow_server.cluster.hints import Hints, events_topic, wake_on_events
from hetuflow_server.cluster.relay import Relay
from hetuflow_server.events import matching_store
from hetuflow_server.events.service import Events
from hetuflow_server.events.store import EventFilter, NewEvent
from hetuflow_server.postgres import partitions
from hetuflow_server.postgres.database import Database
from hetuflow_server.postgres.keyset import Total
from hetuflow_server.postgres.partitions import GaveWay, Partitions
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.upkeep.loop import Upkeep
from hetuflow_server.upkeep.partitions_store import EVENTS
from tests.support.queue.engine import WHO, Engine
from tests.support.waiting import wait_until_async, waits_for_lock

CONFINED = RequestContext.internal(Principal.with_role("confined", Role.OPERATOR, "other"))
EMIT = "SELECT hetuflow_emit(%s, %s, %s, %s)"


@pytest.fixture
def events(scheduling: Engine) -> Events:
    return Events(scheduling.database)


async def emit(events: Events, name: str = "e", payload: Any = None, **more: Any) -> UUID:
    return (await events.emit(WHO, EventRequest(name, payload, **more))).event.id


async def listed(events: Events, context: RequestContext = WHO, **wanted: Any) -> list[UUID]:
    reached = context.reach(wanted.pop("namespace", None))
    page = await events.list_events(EventFilter(reached, **wanted), before=None, limit=50, cap=100)
    return [event.id for event in page.items]


async def test_an_event_is_kept_as_it_came(scheduling: Engine, events: Events) -> None:
    woken: list[None] = []
    events.when_recorded(lambda: woken.append(None))
    payload = {"text": "ä", "list": [1, None, {"a": 1.5}]}
    emitted = await events.emit(WHO, EventRequest("file.uploaded", payload, key="k"))
    assert emitted.is_new
    event = emitted.event
    assert (event.name, event.payload, event.key) == ("file.uploaded", payload, "k")
    assert (event.namespace, event.source, event.created_by) == ("default", "api", "test")
    assert (event.depth, event.task_id, event.matched, event.effects) == (0, None, False, [])
    assert abs(ids.time_of(event.id) - event.created_at) < timedelta(seconds=1)
    assert event.id.version == 7
    assert await events.event(WHO, event.id) == event
    assert woken == [None]


async def test_the_same_key_is_the_same_event_whoever_comes_first(scheduling: Engine, events: Events) -> None:
    emitted = await asyncio.gather(
        *(events.emit(WHO, EventRequest("e", {"n": number}, key="once")) for number in range(4))
    )
    assert len({one.event.id for one in emitted}) == 1
    assert sorted(one.is_new for one in emitted) == [False, False, False, True]
    with psycopg.connect(scheduling.url) as application:
        (from_sql,) = application.execute(EMIT, ("default", "e", "{}", "once")).fetchone() or ()
    assert from_sql == emitted[0].event.id
    assert scheduling.one("SELECT count(*) FROM sched_event_todo")["count"] == 1
    assert await emit(events, key="another") != emitted[0].event.id


async def test_a_key_of_a_transaction_that_is_rolled_back_is_free_again(
    scheduling: Engine, events: Events
) -> None:
    with psycopg.connect(scheduling.url) as application:
        application.execute(EMIT, ("default", "e", "{}", "k"))
        waiting = asyncio.create_task(emit(events, key="k"))
        await wait_until_async(
            lambda: waits_for_lock(scheduling.rows), what="the second to wait for the first"
        )
        application.rollback()
    id_ = await waiting
    assert await listed(events) == [id_]


@pytest.mark.parametrize(
    ("request_", "fields"),
    [
        (EventRequest("a b", {}), ["name"]),
        (EventRequest("", {}, key=""), ["name", "key"]),
        (EventRequest("e", {"a": "\0"}), ["payload"]),
        (EventRequest("e", {"a": "b"}, key="x" * 513), ["key"]),
    ],
)
async def test_faults_are_told_together_and_change_nothing(
    scheduling: Engine, events: Events, request_: EventRequest, fields: list[str]
) -> None:
    with pytest.raises(Invalid) as caught:
        await events.emit(WHO, request_)
    assert caught.value.code == "event.invalid"
    assert [fault.field for fault in caught.value.faults] == fields
    assert scheduling.all("SELECT id FROM sched_event") == []


async def test_what_is_too_much(scheduling: Engine, events: Events) -> None:
    with pytest.raises(TooLarge):
        await emit(events, payload={"a": "x" * 65_536})
    deep: Any = 1
    for _ in range(80):
        deep = [deep]
    with pytest.raises(Invalid) as caught:
        await emit(events, payload=deep)
    assert "deep" in caught.value.faults[0].message
    assert await listed(events) == []


async def test_namespaces_keep_to_themselves(scheduling: Engine, events: Events) -> None:
    await scheduling.applying.apply(WHO, [{"kind": "namespace", "name": "other"}], dry_run=False)
    with pytest.raises(NotFound):
        await emit(events, namespace="nowhere")
    with pytest.raises(NotFound):
        await events.emit(CONFINED, EventRequest("e", {}))
    ours, theirs = await emit(events, key="k"), await emit(events, namespace="other", key="k")
    assert ours != theirs
    assert await listed(events, CONFINED) == [theirs]
    assert await listed(events, CONFINED, namespace="default") == []
    for call in (events.event, events.replay):
        with pytest.raises(NotFound):
            await call(CONFINED, ours)
    viewer = Principal.with_role("viewer", Role.VIEWER)
    with pytest.raises(Denied):
        await events.emit(
            RequestContext.internal(viewer.needing(Permission.EVENTS_EMIT)), EventRequest("e", {})
        )


async def test_the_task_that_emits_must_be_one_of_the_namespace(scheduling: Engine, events: Events) -> None:
    with pytest.raises(Invalid) as caught:
        await emit(events, task_id=uuid4())
    assert caught.value.code == "event.task"
    task_id = await scheduling.run(await scheduling.apply())
    event = await events.event(WHO, await emit(events, task_id=task_id))
    assert (event.source, event.task_id, event.depth) == ("task", task_id, 0)


async def test_lists_by_name_key_and_time(scheduling: Engine, events: Events) -> None:
    sent = [await emit(events, name) for name in ("file.a", "file.b", "other")]
    keyed = await emit(events, "other", key="k")
    assert await listed(events) == [keyed, *reversed(sent)]
    assert await listed(events, name="file.*") == [sent[1], sent[0]]
    assert await listed(events, name="file.a") == [sent[0]]
    assert await listed(events, key="k") == [keyed]
    now = scheduling.now()
    assert await listed(events, since=now + timedelta(seconds=1)) == []
    assert len(await listed(events, until=now + timedelta(seconds=1))) == 4
    for wanted in (EventFilter(), EventFilter(["default"]), EventFilter(["default", "nowhere"])):
        first = await events.list_events(wanted, before=None, limit=2, cap=3)
        assert ([event.id for event in first.items], first.total) == ([keyed, sent[2]], Total(3, capped=True))
        assert first.position == sent[2]
        rest = await events.list_events(wanted, before=first.position, limit=2, cap=4)
        assert ([event.id for event in rest.items], rest.position) == ([sent[1], sent[0]], None)
        assert rest.total == Total(4, capped=False)
    with pytest.raises(Invalid):
        await listed(events, since=now.replace(tzinfo=None))


async def test_a_replay_is_another_event_without_the_key(scheduling: Engine, events: Events) -> None:
    id_ = await emit(events, "e", {"n": 1}, key="k")
    again = (await events.replay(WHO, id_)).event
    assert again.id != id_
    assert (again.name, again.payload, again.key) == ("e", {"n": 1}, None)
    assert (again.replay_of, again.source, again.matched) == (id_, "replay", False)


async def test_others_record_in_transactions_of_their_own(scheduling: Engine, events: Events) -> None:
    namespace_id = scheduling.one("SELECT id FROM sched_namespace WHERE name = 'default'")["id"]
    async with scheduling.database.transaction() as connection:
        new = NewEvent(namespace_id, "hook", '{"a": 1}', "delivery-1", "webhook", "github")
        id_, is_new = await events.record(connection, new)
        assert is_new
        assert await events.record(connection, new) == (id_, False)
    woken: list[None] = []
    events.when_recorded(lambda: woken.append(None))
    events.announce(WHO)
    assert woken == [None]
    assert (await events.event(WHO, id_)).source == "webhook"


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("nowhere", "e", "{}", None), "There is no namespace nowhere"),
        (("default", "a b", "{}", None), "An event has a name"),
        (("default", None, "{}", None), "An event has a name"),
        (("default", "e", '{"a": "' + "x" * 65_536 + '"}', None), "at most 64 KiB"),
        (("default", "e", "{}", ""), "1 to 512 characters"),
    ],
)
def test_sql_refuses_what_the_api_refuses(
    scheduling: Engine, arguments: tuple[Any, ...], message: str
) -> None:
    with (
        psycopg.connect(scheduling.url) as application,
        pytest.raises(psycopg.errors.InvalidParameterValue, match=message),
    ):
        application.execute(EMIT, arguments)


async def test_an_application_needs_only_the_right_to_call(scheduling: Engine, events: Events) -> None:
    role = sql.Identifier(f"app_{uuid4().hex[:8]}")
    owner = scheduling.rows
    owner.execute(sql.SQL("CREATE ROLE {}").format(role))
    try:
        with psycopg.connect(scheduling.url, autocommit=True) as application:
            application.execute(sql.SQL("SET ROLE {}").format(role))
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                application.execute(EMIT, ("default", "e", "{}", None))
            owner.execute(
                sql.SQL("GRANT EXECUTE ON FUNCTION hetuflow_emit(text, text, jsonb, text) TO {}").format(role)
            )
            # A table of the same name in its own temporary schema takes nobody in.
            application.execute("CREATE TEMPORARY TABLE sched_event_todo (event_id uuid, namespace_id int)")
            row = application.execute("SELECT hetuflow_emit('default', 'e')").fetchone()
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                application.execute("SELECT * FROM public.sched_event")
            with pytest.raises(psycopg.errors.InsufficientPrivilege):
                application.execute(
                    "SELECT hetuflow_record_event(1, 'e', '{}', NULL, '', '', 0::smallint, NULL, NULL)"
                )
        assert row is not None
        event = await events.event(WHO, row[0])
        assert (event.source, event.payload, event.matched) == ("sql", {}, False)
    finally:
        owner.execute(sql.SQL("DROP OWNED BY {}").format(role))
        owner.execute(sql.SQL("DROP ROLE {}").format(role))


async def test_a_commit_wakes_servers_once_and_a_rollback_none(scheduling: Engine) -> None:
    hints, woken = Hints(), list[None]()
    wake_on_events(hints, lambda: woken.append(None))
    hints.give([events_topic(1)])
    assert woken == []  # what is emitted here is told in another way
    relay = Relay(scheduling.database, scheduling.url, hints, scheduling.clock)
    await relay.start()
    try:
        await asyncio.wait_for(relay.connected.wait(), 30)
        with psycopg.connect(scheduling.url) as application:
            application.execute(EMIT, ("default", "e", "{}", None))
            application.rollback()
            for _ in range(3):
                application.execute(EMIT, ("default", "e", "{}", None))
            application.commit()
        await wait_until_async(lambda: len(woken) >= 1, timeout=30, what="the news")
        assert len(woken) == 1
    finally:
        await relay.stop()


async def test_old_events_and_keys_go_and_what_is_unmatched_stays(
    database: Database, fresh_database_url: str
) -> None:
    engine, events, day = Engine(fresh_database_url, database), Events(database), timedelta(days=1)
    young, sent = await emit(events, key="young"), {}
    for number, key in enumerate(("old", "waiting")):
        aged = UUID(int=ids.first_id_at(engine.now() - 40 * day).int + number)
        sent[key] = aged
        id_ = await emit(events, key=key)
        for table, column in (("event", "id"), ("event_todo", "event_id"), ("event_key", "event_id")):
            engine.rows.execute(f"UPDATE sched_{table} SET {column} = %s WHERE {column} = %s", (aged, id_))
        for table in ("event", "event_key"):
            engine.rows.execute(
                f"UPDATE sched_{table} SET created_at = now() - '40 days'::interval WHERE key = %s", (key,)
            )
    async with database.transaction() as connection:
        await matching_store.tick_off(connection, [sent["old"], young])
    upkeep = Upkeep(
        database,
        engine.clock,
        keep_tasks=400 * day,
        keep_logs=400 * day,
        keep_artifacts=400 * day,
        keep_events=30 * day,
        keep_audit=30 * day,
        keep_usage=30 * day,
        ahead=day,
    )
    while await upkeep.run_once():
        pass
    assert set(await listed(events)) == {sent["waiting"], young}
    assert await emit(events, key="young") == young
    assert await emit(events, key="old") != sent["old"]
    engine.close()


async def test_what_is_unmatched_stays_in_sight_while_a_partition_is_filled(
    database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    events = Events(database)
    sent = {await emit(events) for _ in range(4)}
    strays = Partitions(database, EVENTS)

    async def cut_off(*_: object) -> None:
        raise GaveWay

    monkeypatch.setattr(partitions, "_BATCH", 1)
    with monkeypatch.context() as patched:
        patched.setattr(Partitions, "_attach", cut_off)
        with pytest.raises(GaveWay):
            await strays.empty_default(most_days=1)
    assert set(await listed(events)) == sent
    assert await strays.empty_default(most_days=1) == 1
    assert set(await listed(events)) == sent


async def test_matching_reads_by_keys_only(scheduling: Engine) -> None:
    """However many events, schedules and windows there are."""
    statements = {
        matching_store._TAKE: {"most": 10},
        matching_store._WAITING: {"namespaces": [1], "patterns": ["a"]},
        matching_store._WINDOWS: {"schedules": [uuid4()], "keys": ["a"]},
        matching_store._DUE: {"namespace_id": 1, "now": scheduling.now(), "most": 10},
        matching_store._DUE_IN: {"namespaces": [1]},
    }
    scheduling.rows.execute("SET enable_seqscan = off")
    for statement, parameters in statements.items():
        rows = scheduling.rows.execute(f"EXPLAIN {statement}", parameters).fetchall()
        plan = "\n".join(row["QUERY PLAN"] for row in rows)
        assert "Seq Scan" not in plan, plan
