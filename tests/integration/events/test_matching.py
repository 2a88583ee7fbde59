"""Events become tasks: each once, by name, filter and what the schedule remembers, whatever is cut off."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from datetime import timedelta
from typing import Any
from uuid import UUID

import psycopg
import pytest

from hetuflow_core import ids
from hetuflow_core.events.windows import DEEPEST_CHAIN, MOST_CHAINED
from hetuflow_core.resources.events import EventDetail, EventRequest
from hetuflow_selftest.scene.database import unfinished
from hetuflow_server.cluster.hints import Topic, namespace_topic
from hetuflow_server.events import match_round, matching_store
from hetuflow_server.events.deadlines import EventDeadlines
from hetuflow_server.events.matcher import EventMatcher
from hetuflow_server.events.matching_store import TakenEvent
from hetuflow_server.events.service import Events
from hetuflow_server.postgres.connection import Connection
from tests.support.cluster.owner_roles import owner_of_everything
from tests.support.queue.engine import WHO, Engine

UPLOADED = {"name": "on-upload", "event": {"name": "file.uploaded"}}


@pytest.fixture
def events(scheduling: Engine) -> Events:
    return Events(scheduling.database)


@pytest.fixture
def matcher(scheduling: Engine) -> EventMatcher:
    return EventMatcher(scheduling.database, scheduling.versions, scheduling.hints)


@pytest.fixture
async def deadlines(scheduling: Engine) -> EventDeadlines:
    ownership = await owner_of_everything(scheduling.database)
    return EventDeadlines(scheduling.database, ownership, scheduling.versions, scheduling.hints)


async def emit(events: Events, name: str, payload: Any = None, **more: Any) -> UUID:
    return (await events.emit(WHO, EventRequest(name, payload or {}, **more))).event.id


async def everything(matcher: EventMatcher) -> None:
    while await matcher.run_once():
        pass


async def at_deadlines(engine: Engine, deadlines: EventDeadlines) -> None:
    """Let every deadline have come, and be looked at."""
    engine.rows.execute("UPDATE sched_event_window SET deadline_at = clock_timestamp() - interval '1 ms'")
    namespaces = await deadlines.look([row["id"] for row in engine.all("SELECT id FROM sched_namespace")])
    for namespace_id in namespaces:
        while await deadlines.run_once(namespace_id):
            pass


def listen(engine: Engine, heard: list[Topic]) -> None:
    def on_news(topics: Collection[Topic], *, relayed: bool) -> None:
        heard.extend(topics)

    engine.hints.listen(on_news)


def tasks(engine: Engine) -> list[dict[str, Any]]:
    return engine.all("SELECT * FROM sched_task ORDER BY due_at, id")


def params(engine: Engine) -> list[Any]:
    return [task["params"] for task in tasks(engine)]


async def outcomes(events: Events, ids_: Sequence[UUID]) -> list[str]:
    found: list[EventDetail] = [await events.event(WHO, id_) for id_ in ids_]
    return [effect.outcome for event in found for effect in event.effects]


async def test_an_event_starts_a_task_with_params_from_its_payload(
    scheduling: Engine, events: Events, matcher: EventMatcher
) -> None:
    job_id = await scheduling.apply(
        {
            **UPLOADED,
            "event": {
                "name": "file.uploaded",
                "filter": "payload.size > 1000 && event.name == 'file.uploaded'",
                "params": {
                    "path": "{{ payload.path }}",
                    "all": "{{ payload }}",
                    "id": "{{ event.id }}",
                    "deep": {"list": ["{{ payload.size }}"]},
                },
            },
            "params": {"who": "schedule"},
            "priority": 700,
        },
        params={"who": "job", "path": "none", "more": 1},
        deadline="1h",
    )
    woken: list[Topic] = []
    listen(scheduling, woken)
    large = await emit(events, "file.uploaded", {"size": 2000, "path": "/in/a"})
    small = await emit(events, "file.uploaded", {"size": 2, "path": "/in/b"})
    other = await emit(events, "file.deleted", {"size": 2000, "path": "/in/c"})
    assert not (await events.event(WHO, large)).matched
    await everything(matcher)
    (task,) = tasks(scheduling)
    schedule = await scheduling.schedule("on-upload")
    assert task["id"] == ids.task_of_event(schedule.id, large)
    assert (task["job_id"], task["schedule_id"], task["priority"]) == (job_id, schedule.id, 700)
    assert task["params"] == {
        "who": "schedule",
        "path": "/in/a",
        "all": {"size": 2000, "path": "/in/a"},
        "id": str(large),
        "deep": {"list": [2000]},
        "more": 1,
    }
    assert task["deadline_at"] == task["due_at"] + timedelta(hours=1)
    assert task["fire_at"] == (await events.event(WHO, large)).created_at
    assert scheduling.fires("status") == ["pending"]
    assert namespace_topic(task["namespace_id"]) in woken
    assert schedule.fired_count == 1
    shown = await events.event(WHO, large)
    assert shown.matched
    assert [(one.job, one.schedule, one.outcome, one.task_id) for one in shown.effects] == [
        ("job", "on-upload", "started", task["id"])
    ]
    assert await outcomes(events, [small, other]) == []


async def test_patterns_find_what_begins_so(
    scheduling: Engine, events: Events, matcher: EventMatcher
) -> None:
    await scheduling.apply(
        {"name": "files", "event": {"name": "file.*"}},
        {"name": "all", "event": {"name": "*"}},
        {"name": "deeper", "event": {"name": "file.in.*"}},
    )
    for name in ("file.uploaded", "file.in.eu", "file", "other"):
        await emit(events, name)
    await everything(matcher)
    rows = scheduling.all(
        "SELECT s.name, count(*) FROM sched_task t JOIN sched_schedule s ON s.id = t.schedule_id GROUP BY 1"
    )
    assert {row["name"]: row["count"] for row in rows} == {"files": 2, "all": 4, "deeper": 1}


async def test_filters_and_params_that_fail_start_nothing_and_say_so(
    scheduling: Engine, events: Events, matcher: EventMatcher
) -> None:
    await scheduling.apply(
        {"name": "a-filter", "event": {"name": "e", "filter": "payload.missing > 1"}},
        {"name": "b-params", "event": {"name": "e", "params": {"x": "{{ payload.missing }}"}}},
        {"name": "c-fine", "event": {"name": "e"}},
    )
    id_ = await emit(events, "e")
    await everything(matcher)
    shown = await events.event(WHO, id_)
    assert [(one.schedule, one.outcome) for one in shown.effects] == [
        ("a-filter", "failed"),
        ("b-params", "failed"),
        ("c-fine", "started"),
    ]
    assert 'there is no key "missing"' in (shown.effects[0].detail or "")
    assert "missing" in (shown.effects[1].detail or "")
    assert len(tasks(scheduling)) == 1


async def test_disabled_schedules_and_other_times_start_nothing(
    scheduling: Engine, events: Events, matcher: EventMatcher
) -> None:
    await scheduling.apply(
        {"name": "disabled", "enabled": False, "event": {"name": "e"}},
        {"name": "later", "start_at": "2100-01-01T00:00:00Z", "event": {"name": "e"}},
        {"name": "over", "end_at": "2020-01-01T00:00:00Z", "event": {"name": "e"}},
        {
            "name": "unwanted",
            "event": {"name": "e"},
            "blackout": [{"from": "2020-01-01T00:00:00Z", "to": "2100-01-01T00:00:00Z"}],
        },
    )
    await scheduling.apply({"name": "of-disabled", "event": {"name": "e"}}, name="disabled-job")
    await scheduling.schedules.enable_job(
        WHO, scheduling.one("SELECT id FROM sched_job WHERE name = 'disabled-job'")["id"], enabled=False
    )
    id_ = await emit(events, "e")
    await everything(matcher)
    assert tasks(scheduling) == []
    shown = await events.event(WHO, id_)
    assert [(one.schedule, one.outcome) for one in shown.effects] == [
        ("later", "skipped"),
        ("over", "skipped"),
        ("unwanted", "skipped"),
    ]
    assert "blackout" in (shown.effects[2].detail or "")
    await scheduling.schedules.enable(WHO, (await scheduling.schedule("disabled")).id, enabled=True)
    await emit(events, "e")
    await everything(matcher)
    assert len(tasks(scheduling)) == 1


async def test_edits_are_found_by_their_new_names_only(
    scheduling: Engine, events: Events, matcher: EventMatcher
) -> None:
    await scheduling.apply(UPLOADED)
    schedule = await scheduling.schedule("on-upload")
    await scheduling.schedules.change(WHO, schedule.id, {"event": {"name": "renamed"}})
    await emit(events, "file.uploaded")
    await emit(events, "renamed")
    await everything(matcher)
    assert len(tasks(scheduling)) == 1
    await scheduling.schedules.change(WHO, schedule.id, {"every": "1h"})
    assert (await scheduling.schedule("on-upload")).kind == "time"
    await scheduling.schedules.change(WHO, schedule.id, {"event": {"name": "renamed"}})
    await scheduling.apply()
    assert scheduling.all("SELECT * FROM sched_event_trigger") == []
    await emit(events, "renamed")
    await everything(matcher)
    assert len(tasks(scheduling)) == 1


async def test_what_is_cut_off_half_way_is_matched_again_and_nothing_twice(
    scheduling: Engine, events: Events, matcher: EventMatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scheduling.apply(UPLOADED)
    sent = [await emit(events, "file.uploaded", {"n": number}) for number in range(5)]

    async def cut_off(connection: Connection, ids_: Sequence[UUID]) -> None:
        raise asyncio.CancelledError

    with monkeypatch.context() as patched:
        patched.setattr(matching_store, "tick_off", cut_off)
        with pytest.raises(asyncio.CancelledError):
            await matcher.run_once()
    assert tasks(scheduling) == []
    assert scheduling.one("SELECT count(*) FROM sched_event_todo")["count"] == 5
    another = EventMatcher(scheduling.database, scheduling.versions, scheduling.hints)
    await asyncio.gather(everything(matcher), everything(another))
    schedule = await scheduling.schedule("on-upload")
    assert {task["id"] for task in tasks(scheduling)} == {ids.task_of_event(schedule.id, id_) for id_ in sent}
    # As if the to-do's had come back with an old backup of theirs: the tasks are there already.
    scheduling.rows.execute("INSERT INTO sched_event_todo SELECT id, namespace_id FROM sched_event")
    await everything(matcher)
    assert len(tasks(scheduling)) == 5
    assert (await scheduling.schedule("on-upload")).fired_count == 5


async def test_an_event_nobody_can_cope_with_does_not_hold_up_the_others(
    scheduling: Engine, events: Events, matcher: EventMatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scheduling.apply(UPLOADED)
    sent = [await emit(events, "file.uploaded", {"n": number}) for number in range(20)]
    arrive = match_round.MatchRound._arrive

    def failing(self: match_round.MatchRound, match: Any) -> None:
        if match.event.id == sent[3]:
            raise ZeroDivisionError
        arrive(self, match)

    monkeypatch.setattr(match_round.MatchRound, "_arrive", failing)
    failures = 0
    for _ in range(40):
        try:
            if not await matcher.run_once():
                break
        except ZeroDivisionError:
            failures += 1
    assert failures == 1
    assert len(tasks(scheduling)) == 19
    assert scheduling.all("SELECT * FROM sched_event_todo") == []


async def test_nothing_is_given_up_because_somebody_was_in_the_way(
    scheduling: Engine, events: Events, matcher: EventMatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scheduling.apply(UPLOADED)
    await emit(events, "file.uploaded")

    async def in_the_way(connection: Connection, ids_: Any) -> dict[UUID, int]:
        raise psycopg.errors.QueryCanceled

    with monkeypatch.context() as patched:
        patched.setattr(matching_store, "lock", in_the_way)
        for _ in range(5):
            with pytest.raises(psycopg.errors.QueryCanceled):
                await matcher.run_once()
    await everything(matcher)
    assert len(tasks(scheduling)) == 1


async def test_an_edit_in_between_is_noticed(
    scheduling: Engine, events: Events, matcher: EventMatcher, monkeypatch: pytest.MonkeyPatch
) -> None:
    await scheduling.apply(UPLOADED)
    await emit(events, "file.uploaded")
    lock = matching_store.lock

    async def after_an_edit(connection: Connection, ids_: Any) -> dict[UUID, int]:
        monkeypatch.setattr(matching_store, "lock", lock)
        await scheduling.apply({**UPLOADED, "event": {"name": "file.uploaded", "params": {"new": 1}}})
        return await lock(connection, ids_)

    monkeypatch.setattr(matching_store, "lock", after_an_edit)
    assert await matcher.run_once() == 1
    assert tasks(scheduling) == []
    await everything(matcher)
    assert params(scheduling) == [{"new": 1}]


async def test_what_a_long_transaction_emitted_is_matched_when_it_commits(
    scheduling: Engine, events: Events, matcher: EventMatcher
) -> None:
    await scheduling.apply({**UPLOADED, "event": {"name": "e", "params": {"n": "{{ payload.n }}"}}})
    with psycopg.connect(scheduling.url) as application:
        application.execute("""SELECT hetuflow_emit('default', 'e', '{"n": "late"}')""")
        await emit(events, "e", {"n": "early"})
        await everything(matcher)
        assert params(scheduling) == [{"n": "early"}]
        application.commit()
    await everything(matcher)
    assert sorted(one["n"] for one in params(scheduling)) == ["early", "late"]


async def test_debounce_starts_one_task_with_the_last_event(
    scheduling: Engine, events: Events, matcher: EventMatcher, deadlines: EventDeadlines
) -> None:
    await scheduling.apply(
        {
            "name": "s",
            "event": {
                "name": "e",
                "debounce": {"quiet": "1h", "at_most": "2h"},
                "key": "payload.who",
                "params": {"n": "{{ payload.n }}", "count": "{{ event.count }}"},
            },
        },
    )
    first = [await emit(events, "e", {"who": "a", "n": number}) for number in range(3)]
    await everything(matcher)
    last = await emit(events, "e", {"who": "a", "n": 3})
    other = await emit(events, "e", {"who": "b", "n": 9})
    await everything(matcher)
    assert tasks(scheduling) == []
    # A new version of the job lets what has been counted go on to count.
    await scheduling.apply(
        {
            "name": "s",
            "event": {
                "name": "e",
                "debounce": {"quiet": "1h", "at_most": "2h"},
                "key": "payload.who",
                "params": {"n": "{{ payload.n }}", "count": "{{ event.count }}"},
            },
        },
        timeout="1m",
    )
    await at_deadlines(scheduling, deadlines)
    assert sorted(params(scheduling), key=str) == [{"n": 3, "count": 4}, {"n": 9, "count": 1}]
    assert scheduling.all("SELECT * FROM sched_event_window") == []
    assert await outcomes(events, [*first, last, other]) == [*["debounced"] * 3, "started", "started"]
    (effect,) = (await events.event(WHO, first[0])).effects
    assert effect.task_id == (await events.event(WHO, last)).effects[0].task_id is not None
    await at_deadlines(scheduling, deadlines)
    assert len(tasks(scheduling)) == 2


async def test_throttle_lets_so_many_through_in_a_time(
    scheduling: Engine, events: Events, matcher: EventMatcher, deadlines: EventDeadlines
) -> None:
    await scheduling.apply({"name": "s", "event": {"name": "e", "throttle": {"max": 2, "per": "1h"}}})
    sent = [await emit(events, "e") for _ in range(4)]
    await everything(matcher)
    assert await outcomes(events, sent) == ["started", "started", "throttled", "throttled"]
    await at_deadlines(scheduling, deadlines)
    await emit(events, "e")
    await everything(matcher)
    assert len(tasks(scheduling)) == 3


async def test_all_of_starts_when_all_have_come_for_one_key(
    scheduling: Engine, events: Events, matcher: EventMatcher, deadlines: EventDeadlines
) -> None:
    await scheduling.apply(
        {
            "name": "s",
            "event": {
                "all_of": [{"name": "orders", "filter": "payload.ok"}, {"name": "prices"}],
                "within": "1h",
                "key": "payload.day",
                "params": {"day": "{{ payload.day }}", "orders": "{{ events[0].payload.file }}"},
            },
        }
    )
    sent = [
        await emit(events, "orders", {"day": 1, "ok": True, "file": "o1"}),
        await emit(events, "prices", {"day": 2}),
        await emit(events, "orders", {"day": 2, "ok": False, "file": "o2"}),
    ]
    await everything(matcher)
    assert tasks(scheduling) == []
    sent.append(await emit(events, "prices", {"day": 1}))
    await everything(matcher)
    assert params(scheduling) == [{"day": 1, "orders": "o1"}]
    assert await outcomes(events, sent) == ["collected", "collected", "started"]
    task_id = tasks(scheduling)[0]["id"]
    assert (await events.event(WHO, sent[0])).effects[0].task_id == task_id
    # What was collected too long ago is given up.
    scheduling.rows.execute(
        "UPDATE sched_event_window "
        "SET collected = jsonb_set(collected, '{1,1}', '\"2020-01-01T00:00:00+00:00\"')"
    )
    await at_deadlines(scheduling, deadlines)
    assert scheduling.all("SELECT * FROM sched_event_window") == []
    await emit(events, "orders", {"day": 2, "ok": True, "file": "o2"})
    await everything(matcher)
    assert len(tasks(scheduling)) == 1


async def test_absence_starts_when_what_was_expected_does_not_come(
    scheduling: Engine, events: Events, matcher: EventMatcher, deadlines: EventDeadlines
) -> None:
    await scheduling.apply(
        {
            "name": "s",
            "event": {
                "name": "paid",
                "absence": {"name": "shipped", "within": "1h"},
                "key": "payload.order",
                "params": {"order": "{{ payload.order }}"},
            },
        }
    )
    sent = [await emit(events, "paid", {"order": 1}), await emit(events, "paid", {"order": 2})]
    await everything(matcher)
    sent.append(await emit(events, "shipped", {"order": 1}))
    sent.append(await emit(events, "shipped", {"order": 3}))
    await everything(matcher)
    assert tasks(scheduling) == []
    await at_deadlines(scheduling, deadlines)
    assert params(scheduling) == [{"order": 2}]
    assert await outcomes(events, sent) == ["answered", "started", "answered", "answered"]


async def test_silence_is_watched_from_when_the_schedule_is_enabled(
    scheduling: Engine, events: Events, matcher: EventMatcher, deadlines: EventDeadlines
) -> None:
    job_id = await scheduling.apply(
        {"name": "s", "event": {"absence": {"name": "heartbeat", "within": "1h"}}}
    )
    await at_deadlines(scheduling, deadlines)
    await at_deadlines(scheduling, deadlines)
    assert len(tasks(scheduling)) == 1  # once for one silence
    await emit(events, "heartbeat")
    await everything(matcher)
    await emit(events, "heartbeat")
    await everything(matcher)
    await at_deadlines(scheduling, deadlines)
    assert len(tasks(scheduling)) == 2
    await scheduling.schedules.enable_job(WHO, job_id, enabled=False)
    assert scheduling.all("SELECT * FROM sched_event_window") == []
    await scheduling.schedules.enable_job(WHO, job_id, enabled=True)
    await at_deadlines(scheduling, deadlines)
    assert len(tasks(scheduling)) == 3


async def test_an_answer_after_the_deadline_comes_too_late(
    scheduling: Engine, events: Events, matcher: EventMatcher
) -> None:
    await scheduling.apply(
        {"name": "s", "event": {"name": "paid", "absence": {"name": "shipped", "within": "1h"}}}
    )
    await emit(events, "paid")
    await everything(matcher)
    scheduling.rows.execute("UPDATE sched_event_window SET deadline_at = now() - interval '1 s'")
    await emit(events, "shipped")
    await everything(matcher)
    assert len(tasks(scheduling)) == 1


async def test_overlap_is_decided_as_for_other_schedules(
    scheduling: Engine, events: Events, matcher: EventMatcher
) -> None:
    await scheduling.apply({**UPLOADED, "overlap": "skip"}, {"name": "free", "event": {"name": "free"}})
    woken: list[None] = []
    matcher.when_held(lambda: woken.append(None))
    await emit(events, "free")
    await everything(matcher)
    assert woken == []
    await emit(events, "file.uploaded")
    await everything(matcher)
    assert scheduling.fires("status", "held_reason")[1:] == [("held", "overlap")]
    assert woken == [None]


async def test_an_event_starts_a_flow(scheduling: Engine, events: Events, matcher: EventMatcher) -> None:
    flow = {"nodes": [{"name": "a", "run": {"command": ["true"]}}]}
    document = {"kind": "job", "name": "flow", "flow": flow, "schedules": [UPLOADED]}
    await scheduling.applying.apply(WHO, [document], dry_run=False)
    id_ = await emit(events, "file.uploaded")
    await everything(matcher)
    assert await outcomes(events, [id_]) == ["started"]
    assert scheduling.fires("status", "held_reason") == [("held", "flow")]


async def test_concurrency_keys_are_made_of_the_params(
    scheduling: Engine, events: Events, matcher: EventMatcher
) -> None:
    await scheduling.apply(
        {"name": "s", "event": {"name": "e", "params": {"who": "{{ payload.who }}"}}},
        concurrency={"key": "{{ params.who }}"},
        params={"who": "nobody"},
    )
    for who in ("a", "b", "a"):
        await emit(events, "e", {"who": who})
    await everything(matcher)
    keys = scheduling.fires("concurrency_key")
    assert keys[0] == keys[2] != keys[1]


async def test_chains_of_events_end(scheduling: Engine, events: Events, matcher: EventMatcher) -> None:
    await scheduling.apply({"name": "again", "event": {"name": "ping"}})
    first = last = await emit(events, "ping")
    for _ in range(DEEPEST_CHAIN + 3):
        await everything(matcher)
        (effect,) = (await events.event(WHO, last)).effects
        if effect.task_id is None:
            break
        last = await emit(events, "ping", task_id=effect.task_id)
    assert effect.outcome == "loop"
    assert len(tasks(scheduling)) == DEEPEST_CHAIN + 1
    assert (await events.event(WHO, first)).depth == 0
    assert (await events.event(WHO, last)).depth == DEEPEST_CHAIN + 1
    # A replay is a person's doing, and begins a chain of its own.
    await events.replay(WHO, last)
    await everything(matcher)
    assert len(tasks(scheduling)) == DEEPEST_CHAIN + 2


async def test_too_many_chained_events_a_minute_are_a_loop(
    scheduling: Engine, events: Events, matcher: EventMatcher
) -> None:
    await scheduling.apply({"name": "again", "event": {"name": "ping"}})
    await emit(events, "ping")
    await everything(matcher)
    scheduling.rows.execute(
        "INSERT INTO sched_event_window (schedule_id, key, namespace_id, id, opened_at, deadline_at, count) "
        "SELECT id, 'chain', namespace_id, id, now(), now() + interval '1 min', %s FROM sched_schedule",
        (MOST_CHAINED - 1,),
    )
    cause = tasks(scheduling)[0]["id"]
    sent = [await emit(events, "ping", task_id=cause), await emit(events, "ping", task_id=cause)]
    await everything(matcher)
    assert await outcomes(events, sent) == ["started", "loop"]


async def test_subscribers_are_asked_in_the_same_transaction(scheduling: Engine, events: Events) -> None:
    asked: list[str] = []

    class Waiter:
        async def take(self, connection: Connection, events: Sequence[TakenEvent]) -> list[Topic]:
            asked.extend(event.name for event in events)
            return [namespace_topic(77)]

    woken: list[Topic] = []
    listen(scheduling, woken)
    matcher = EventMatcher(scheduling.database, scheduling.versions, scheduling.hints, [Waiter()])
    await emit(events, "wanted")
    await everything(matcher)
    assert asked == ["wanted"]
    assert namespace_topic(77) in woken


async def test_the_self_test_waits_for_what_is_not_matched(
    scheduling: Engine, events: Events, matcher: EventMatcher, database_url: str
) -> None:
    await scheduling.apply(UPLOADED)
    assert await unfinished(database_url) == 0
    await emit(events, "file.uploaded")
    assert await unfinished(database_url) == 1
    await everything(matcher)
    assert [row["n"] for row in scheduling.all("SELECT count(*) AS n FROM sched_event_todo")] == [0]
    assert await unfinished(database_url) == 1
