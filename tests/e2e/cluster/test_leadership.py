"""Leaders that are killed, stopped, starved, cut off: soon there is one again, and never two that count."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any
from uuid import uuid4

import psycopg
import pytest

from hetuflow_server.schema import migrate
from tests.support.cluster.candidate import LATE_WRITES, WITNESS, Candidate
from tests.support.postgres.databases import DatabaseServer
from tests.support.postgres.embedded import quick
from tests.support.waiting import wait_until

TTL, LONG_TTL = 2.0, 60.0
# From the end of the lease, by the database's clock.
TAKEOVER = timedelta(seconds=2)


@dataclass
class Contest:
    """Two candidates on a database of their own, the first of which leads."""

    rows: psycopg.Connection[Any]
    leader: Candidate
    heir: Candidate

    def one(self, query: str, *parameters: Any) -> Any:
        row = self.rows.execute(query, parameters).fetchone()
        assert row is not None, query
        return row[0]

    def expires_at(self) -> datetime:
        at: datetime = self.one("SELECT expires_at FROM distributed_lock")
        return at

    def await_term(self, epoch: int) -> datetime:
        """When that term began."""
        row = wait_until(
            lambda: self.rows.execute(
                "SELECT at, holder FROM leader_term WHERE epoch = %s", [epoch]
            ).fetchone(),
            timeout=60,
            what=f"term {epoch}",
        )
        assert row is not None
        began: datetime = row[0]
        assert row[1] == self.heir.holder
        return began

    def await_writes_of(self, epoch: int) -> None:
        wait_until(
            lambda: self.one("SELECT count(*) FROM witness WHERE epoch = %s", epoch) > 0,
            timeout=60,
            what=f"writes of term {epoch}",
        )

    def await_session(self, condition: str, what: str) -> None:
        """Until the database has a session like this, other than the one that asks."""
        wait_until(
            lambda: self.one(
                "SELECT count(*) FROM pg_stat_activity "
                f"WHERE datname = current_database() AND pid <> pg_backend_pid() AND {condition}"
            ),
            timeout=60,
            what=what,
        )

    def check(self) -> None:
        """What holds after whatever has happened."""
        assert self.rows.execute(LATE_WRITES).fetchall() == []
        epochs = [epoch for (epoch,) in self.rows.execute("SELECT epoch FROM leader_term ORDER BY at")]
        assert epochs == list(range(1, len(epochs) + 1))


@contextmanager
def contest(database_server: DatabaseServer, name: str, ttl: float) -> Iterator[Contest]:
    url = database_server.clone(f"lead_{name}_{uuid4().hex[:8]}")
    with ExitStack() as opened:
        opened.callback(database_server.drop, url)
        rows = opened.enter_context(psycopg.connect(url, autocommit=True))
        rows.execute(WITNESS)
        leader = opened.enter_context(Candidate(url, uuid4(), ttl))
        leader.hear("won")
        heir = opened.enter_context(Candidate(url, uuid4(), ttl))
        heir.hear("started")
        one = Contest(rows, leader, heir)
        one.await_writes_of(1)
        yield one
        one.check()


def a_killed_leader_is_followed_when_its_lease_ends(one: Contest) -> None:
    os.kill(one.leader.pid, signal.SIGKILL)
    expired = one.expires_at()
    began = one.await_term(2)
    assert expired <= began <= expired + TAKEOVER
    one.await_writes_of(2)


def a_stopped_leader_writes_nothing_when_it_resumes(one: Contest) -> None:
    os.kill(one.leader.pid, signal.SIGSTOP)
    expired = one.expires_at()
    began = one.await_term(2)
    assert expired <= began <= expired + TAKEOVER
    one.await_writes_of(2)
    time.sleep(max(0.0, 3 * TTL - (one.one("SELECT clock_timestamp()") - expired).total_seconds()))
    before = one.leader.told
    os.kill(one.leader.pid, signal.SIGCONT)
    woke, lost = one.leader.hear("woke", after=before), one.leader.hear("lost", after=before)
    assert lost["boottime"] - woke["boottime"] < 1, "its own clock tells it, at once"
    # It is a candidate like any other again: once the heir is gone it leads, under a later epoch.
    one.heir.say("resign")
    assert one.leader.hear("won", after=before)["epoch"] == 3
    one.await_writes_of(3)


def a_leader_stopped_in_a_transaction_holds_nobody_up(one: Contest) -> None:
    one.leader.say("hold")
    one.leader.hear("holding")
    os.kill(one.leader.pid, signal.SIGSTOP)
    expired = one.expires_at()
    began = one.await_term(2)
    assert began <= expired + TAKEOVER
    one.await_writes_of(2)
    os.kill(one.leader.pid, signal.SIGCONT)
    one.leader.hear("lost")
    assert one.one("SELECT weight FROM sched_namespace") == 100, "what it held is not committed"


def a_leader_stopped_while_rows_are_sent_to_it_is_cut_off(one: Contest) -> None:
    one.leader.say("rows")
    one.leader.hear("asking")
    # It says so before it asks.
    one.await_session("state = 'active' AND query LIKE '%%generate_series%%'", "rows on their way")
    os.kill(one.leader.pid, signal.SIGSTOP)
    one.await_session("wait_event = 'ClientWrite'", "a database that cannot get rid of its rows")
    expired = one.expires_at()
    began = one.await_term(2)
    assert began <= expired + TAKEOVER
    os.kill(one.leader.pid, signal.SIGCONT)
    one.leader.hear("lost")
    assert one.one("SELECT weight FROM sched_namespace") == 100, "what it wrote is not committed"


def a_leader_whose_loops_stall_keeps_its_lease(one: Contest) -> None:
    one.leader.say(f"stall {5 * TTL}")
    one.leader.hear("stalling")
    assert one.leader.hear("stalled")["term"], "and it still trusts itself"
    assert one.one("SELECT count(*) FROM leader_term") == 1
    assert one.one("SELECT holder FROM distributed_lock") == one.leader.holder


def a_leader_that_resigns_is_followed_long_before_its_lease_would_end(one: Contest) -> None:
    one.leader.say("resign")
    resigned = one.leader.hear("resigned")
    began = one.await_term(2).timestamp()
    # How soon is a matter of how often the heir looks, and of how busy this machine is.
    assert began - resigned["at"] < LONG_TTL / 2
    one.await_writes_of(2)


SCENARIOS: list[tuple[Callable[[Contest], None], float]] = [
    (a_killed_leader_is_followed_when_its_lease_ends, TTL),
    (a_stopped_leader_writes_nothing_when_it_resumes, TTL),
    (a_leader_stopped_in_a_transaction_holds_nobody_up, TTL),
    (a_leader_stopped_while_rows_are_sent_to_it_is_cut_off, TTL),
    (a_leader_whose_loops_stall_keeps_its_lease, TTL),
    (a_leader_that_resigns_is_followed_long_before_its_lease_would_end, LONG_TTL),
]


@pytest.mark.timeout(300)  # a dozen processes start at once, which takes its time on a busy machine
def test_a_leader_in_trouble(database_server: DatabaseServer) -> None:
    """Side by side, each on a database of its own: most of it is waiting for leases to end."""

    def play(number: int) -> Exception | None:
        scenario, ttl = SCENARIOS[number]
        try:
            with contest(database_server, f"s{number}", ttl) as one:
                scenario(one)
        except Exception as error:  # noqa: BLE001  all of them are told together below
            error.add_note(f"in: {scenario.__name__}")
            return error
        return None

    with ThreadPoolExecutor(len(SCENARIOS)) as pool:
        faults = [fault for fault in pool.map(play, range(len(SCENARIOS))) if fault is not None]
    if faults:
        raise ExceptionGroup("scenarios that went wrong", faults)


@pytest.mark.parametrize("end", ["restarted", "crashed"])
def test_a_database_that_goes_and_comes_back_is_led_again(made_cluster_dir: Path, end: str) -> None:
    with quick(made_cluster_dir) as postgres, ExitStack() as opened:
        migrate.upgrade(postgres.url)
        with psycopg.connect(postgres.url, autocommit=True) as rows:
            rows.execute(WITNESS)
        leader = opened.enter_context(Candidate(postgres.url, uuid4(), TTL))
        leader.hear("won")
        heir = opened.enter_context(Candidate(postgres.url, uuid4(), TTL))
        heir.hear("started")
        with psycopg.connect(postgres.url, autocommit=True) as rows:
            backend = rows.info.backend_pid
            before = rows.execute("SELECT clock_timestamp()").fetchone()
            assert before is not None
            if end == "crashed":
                # Any backend that is killed takes all of them down, and the database recovers from its log.
                os.kill(backend, signal.SIGKILL)
        if end == "restarted":
            postgres.stop_blocking()
            postgres.start_blocking()
        rows = opened.enter_context(wait_until(lambda: _connected(postgres.url), timeout=60))
        one = Contest(rows, leader, heir)
        wait_until(
            lambda: one.one("SELECT count(*) FROM witness WHERE at > %s", before[0]) > 0,
            timeout=60,
            what="writes of a leader again",
        )
        one.check()


def _connected(url: str) -> psycopg.Connection[Any] | None:
    try:
        return psycopg.connect(url, autocommit=True, connect_timeout=2)
    except psycopg.OperationalError:
        return None
