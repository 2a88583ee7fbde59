"""The audit trail on a database: written with its effect, sealed as it commits, guarded, expired."""

from __future__ import annotations

from collections.abc import AsyncIterator
from dataclasses import replace
from datetime import timedelta
from typing import Any, NoReturn

import psycopg
import pytest

from hetuflow_core import ids
from hetuflow_core.access.roles import Role
from hetuflow_core.audit_chain import Break, Link, Seal, walked
from hetuflow_core.errors import Conflict
from hetuflow_core.resources.limits import LimitRequest
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.audit import store
from hetuflow_server.audit.partitions_store import AUDIT, AuditPartitions
from hetuflow_server.audit.sealer import AuditSealer
from hetuflow_server.audit.service import Denials
from hetuflow_server.limits.service import Limits
from hetuflow_server.postgres.database import Database
from hetuflow_server.postgres.partitions import days_wanted
from hetuflow_server.postgres.pipeline import Pipeline
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal, PrincipalKind
from tests.support.queue.engine import WHO, Engine
from tests.support.requests import audited_request


def request(*, mutates: bool = True, action: str = "create_limit") -> RequestContext:
    ann = replace(Principal.with_role("ann", Role.ADMIN), kind=PrincipalKind.KEY)
    return audited_request(action, ann, mutates=mutates)


@pytest.fixture
def limits(scheduling: Engine) -> Limits:
    return Limits(scheduling.database, scheduling.hints)


@pytest.fixture
async def own(database: Database, fresh_database_url: str) -> AsyncIterator[Engine]:
    """Services on a database whose partitions are the test's."""
    engine = Engine(fresh_database_url, database)
    yield engine
    engine.close()


def entries(engine: Engine) -> list[dict[str, Any]]:
    return engine.all("SELECT * FROM sched_audit ORDER BY id")


async def walk(engine: Engine, after: Seal | None = None) -> Seal | Break:
    """Follow the chain as it is stored, from its beginning."""
    async with engine.database.transaction() as connection:
        found, tombstones, _ = await store.chain(connection, 0, 1000)
    links = [one.link() for one in found]
    links += [Link(Seal(one.seq, bytes.fromhex(one.hash)), None) for one in tombstones]
    links.sort(key=lambda link: link.seal.seq)
    if after is not None:
        assert links[0].seal == after
        return walked(after, links[1:])
    return walked(Seal(0, store.START.hash), links)


async def test_an_entry_is_written_with_its_effect_and_not_without(
    scheduling: Engine, limits: Limits
) -> None:
    context = request()
    await limits.create(context, LimitRequest("tool:a", 1))
    with pytest.raises(Conflict):
        await limits.create(context, LimitRequest("tool:a", 1))
    context = request(mutates=False)
    await limits.limit(context, "default", "tool:a")
    (entry,) = entries(scheduling)
    shown = [entry[key] for key in ("actor_kind", "actor", "source", "action", "outcome", "request_id")]
    assert shown == ["key", "ann", "192.0.2.1", "create_limit", "done", "req-1"]
    assert [entry[key] for key in ("target_kind", "target", "namespace")] == ["limit", "tool:a", "default"]
    assert entry["before"] is None
    assert entry["after"] is not None
    context = request(action="change_limit")
    await limits.change(context, "default", "tool:a", 2)
    changed = entries(scheduling)[1]
    assert changed["before"] == entry["after"] != changed["after"]


async def test_outside_of_requests_nothing_is_written(scheduling: Engine, limits: Limits) -> None:
    await limits.create(WHO, LimitRequest("tool:a", 1))
    assert entries(scheduling) == []


async def test_whatever_a_request_writes_leaves_an_entry(scheduling: Engine) -> None:
    """Also where nobody has thought of it."""
    context = request(action="forgotten")
    async with scheduling.database.transaction(context) as connection:
        await connection.execute("UPDATE sched_namespace SET weight = 7 WHERE name = 'default'")
    async with scheduling.database.transaction(context) as connection:
        await connection.execute("SELECT weight FROM sched_namespace")
    async with scheduling.database.transaction(context) as connection:
        await connection.execute("UPDATE sched_namespace SET weight = 8 WHERE name = 'default'")
        await connection.rollback()
    (entry,) = entries(scheduling)
    assert (entry["action"], entry["target_kind"], entry["target"]) == ("forgotten", "request", "/limits")


async def test_the_entry_goes_with_the_last_statement_and_its_commit(
    scheduling: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    trips = 0
    exchange = Pipeline.exchange

    async def counted(self: Pipeline) -> Any:
        nonlocal trips
        trips += 1
        return await exchange(self)

    async def write(context: RequestContext, name: str, *, last: bool) -> None:
        async with scheduling.database.transaction(context) as connection:
            await connection.execute(
                "INSERT INTO sched_limit (namespace_id, scope, max, named) VALUES (1, %(name)s, 1, true)",
                {"name": name},
                last=last,
            )

    monkeypatch.setattr(Pipeline, "exchange", counted)
    context = request()
    # Often enough for both statements to be prepared, in the same exchange and one after the other.
    for number in range(4):
        await write(context, f"tool:{number}", last=True)
    assert trips == 4
    await write(context, "tool:5", last=False)
    assert trips == 6
    with pytest.raises(psycopg.errors.UniqueViolation):
        await write(context, "tool:5", last=True)
    assert [entry["target"] for entry in entries(scheduling)] == ["/limits"] * 5


async def test_without_its_entry_nothing_is_done(scheduling: Engine) -> None:
    context = request(action="\x00")
    with pytest.raises(psycopg.DataError):
        async with scheduling.database.transaction(context) as connection:
            await connection.execute(
                "INSERT INTO sched_limit (namespace_id, scope, max, named) VALUES (1, 'tool:a', 1, true)",
                last=True,
            )
    assert scheduling.all("SELECT scope FROM sched_limit") == []
    # The session that was left in the middle of it is as good as new.
    async with scheduling.database.transaction() as connection:
        assert (await connection.execute("SELECT 1")).scalar_one() == 1


async def test_a_look_within_a_request_is_one_round_trip_and_leaves_no_entry(
    scheduling: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[bytes] = []
    send = Pipeline.send

    def noted(self: Pipeline, command: bytes, *arguments: Any, **options: Any) -> int:
        said.append(command)
        return send(self, command, *arguments, **options)

    monkeypatch.setattr(Pipeline, "send", noted)
    context = request()
    async with scheduling.database.reading(context) as connection:
        await connection.execute("SELECT 1")
    assert said[-1] == b"SELECT 1"
    assert b"BEGIN" not in said
    assert entries(scheduling) == []


async def test_entries_are_sealed_in_the_order_of_their_commits(scheduling: Engine, limits: Limits) -> None:
    sealer = AuditSealer(scheduling.database, scheduling.database)
    with psycopg.connect(scheduling.url) as late:
        # Its id is the oldest, and it commits last.
        old = ids.new_id(scheduling.now() - timedelta(seconds=5), b"0" * 10)
        late.execute(
            "INSERT INTO sched_audit (id, actor_kind, actor, action, outcome) "
            "VALUES (%s, 'key', 'late', 'x', 'done')",
            [old],
        )
        context = request()
        for number in range(3):
            await limits.create(context, LimitRequest(f"tool:{number}", 1))
        assert await sealer.run_once() == 3
        late.commit()
    assert await sealer.run_once() == 1
    assert await sealer.run_once() == 0
    found = scheduling.all("SELECT id, seq FROM sched_audit ORDER BY seq")
    assert [row["seq"] for row in found] == [1, 2, 3, 4]
    assert found[3]["id"] == old
    reached = await walk(scheduling)
    assert isinstance(reached, Seal)
    assert reached.seq == 4


async def test_with_nothing_to_seal_a_round_only_looks(scheduling: Engine, limits: Limits) -> None:
    class Refused:
        def transaction(self) -> NoReturn:
            raise AssertionError("nothing was to be written")

    await sealed_limits(scheduling, limits, 2)
    assert await AuditSealer(scheduling.database, Refused()).run_once() == 0
    context = request()
    await limits.create(context, LimitRequest("tool:new", 1))
    with pytest.raises(AssertionError, match="nothing was"):
        await AuditSealer(scheduling.database, Refused()).run_once()


async def sealed_limits(engine: Engine, limits: Limits, count: int) -> None:
    context = request()
    for number in range(count):
        await limits.create(context, LimitRequest(f"tool:{number}", 1))
    assert await AuditSealer(engine.database, engine.database).run_once() == count


async def test_the_database_refuses_to_change_it_and_the_chain_shows_who_does_anyway(
    scheduling: Engine, limits: Limits
) -> None:
    await sealed_limits(scheduling, limits, 4)
    for statement in (
        "UPDATE sched_audit SET actor = 'bob' WHERE seq = 2",
        "UPDATE sched_audit SET seq = NULL, hash = NULL WHERE seq = 2",
        "DELETE FROM sched_audit WHERE seq = 2",
        "TRUNCATE sched_audit",
    ):
        with pytest.raises(psycopg.errors.IntegrityConstraintViolation, match="not changed"):
            scheduling.rows.execute(statement)
    scheduling.rows.execute("SET session_replication_role = replica")
    scheduling.rows.execute("UPDATE sched_audit SET actor = 'bob' WHERE seq = 3")
    assert await walk(scheduling) == Break(3, "differs from the sealed entry")
    scheduling.rows.execute("UPDATE sched_audit SET actor = 'ann' WHERE seq = 3")
    assert isinstance(await walk(scheduling), Seal)
    scheduling.rows.execute("DELETE FROM sched_audit WHERE seq = 2")
    assert await walk(scheduling) == Break(2, "is missing")


async def test_denials_are_bounded_and_counted(scheduling: Engine) -> None:
    denials = Denials(scheduling.database, SystemClock())
    for _ in range(25):
        await denials.note(request().audit, 403)
    written = entries(scheduling)
    assert 20 <= len(written) <= 25  # a minute may have passed in between
    assert {row["outcome"] for row in written} == {"denied"}
    assert written[0]["detail"] == {"status": 403}
    elsewhere = request().audit
    elsewhere.source = "192.0.2.2"
    await denials.note(elsewhere, 401)
    assert [row["source"] for row in entries(scheduling)][-1] == "192.0.2.2"


async def test_what_expires_leaves_a_chain_that_can_be_followed(own: Engine) -> None:
    now = own.now()
    partitions = AuditPartitions(own.database, AUDIT)
    await partitions.create(days_wanted(now, timedelta(0)))
    midnight = now.replace(hour=0, minute=0, second=0, microsecond=0)
    # One of yesterday is sealed behind one of today, as around midnight.
    for number, at in enumerate([-7200, -3600, 3600, -1800, 7200]):
        own.rows.execute(
            "INSERT INTO sched_audit (id, at, actor_kind, actor, action, outcome) "
            "VALUES (%s, %s, 'key', 'ann', %s, 'done')",
            [ids.new_id(midnight + timedelta(seconds=at), bytes([number]) * 10), midnight, f"a{number}"],
        )
        assert await AuditSealer(own.database, own.database).run_once() == 1
    before = await walk(own)
    assert isinstance(before, Seal)
    assert await partitions.expire(midnight) == 1
    left = own.all("SELECT action FROM sched_audit ORDER BY seq NULLS LAST")
    assert [row["action"] for row in left] == ["a2", "a4", "expire_audit"]
    stones = own.all("SELECT seq, hash FROM sched_audit_tombstone ORDER BY seq")
    assert [row["seq"] for row in stones] == [2, 4]
    begins = Seal(2, stones[0]["hash"])
    assert await walk(own, begins) == before
    # And what was let go is itself sealed.
    assert await AuditSealer(own.database, own.database).run_once() == 1
    said = own.one("SELECT detail, seq FROM sched_audit WHERE action = 'expire_audit'")
    assert (said["seq"], said["detail"]["seq"], said["detail"]["hash"]) == (6, 2, begins.hash.hex())


async def test_entries_are_filed_into_partitions_although_they_cannot_be_deleted(own: Engine) -> None:
    await sealed_limits(own, Limits(own.database, own.hints), 2)
    partitions = AuditPartitions(own.database, AUDIT)
    assert await partitions.empty_default(most_days=2) == 1
    assert own.all("SELECT FROM sched_audit_default") == []
    assert isinstance(await walk(own), Seal)
