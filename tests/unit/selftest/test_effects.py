"""A fault that nobody felt proves nothing: the judge says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hetuflow_selftest.nemesis.faults import FAULTS
from hetuflow_selftest.oracle.verdict import Outcome
from tests.support.selftest.histories import (
    FIRST,
    OFFSET,
    SECOND,
    Written,
    good,
    leader_write,
    records_of,
    row_of,
)


def nobody_took_over(written: Written) -> None:
    written.drop(written.rows("leader_term")[1])


def another_fault_made_one_take_over(written: Written) -> None:
    written.rows("leader_term")[1]["committed_at"] = OFFSET + 112.5


def nothing_was_generated_afterwards(written: Written) -> None:
    for task in written.rows("task"):
        task["created_at"] = OFFSET + 95


def test_a_fault_that_could_not_be_made_proves_nothing() -> None:
    written = good()
    written.nemesis[:] = [{"kind": "unsupported", "at": 108.0, "fault": "kill-leader", "why": "no right to"}]
    assert written.judged()["fault: kill-leader"].outcome is Outcome.UNKNOWN


def struck(fault: str, **facts: Any) -> Written:
    """A good history in which this fault was there instead, from 104.2 to 112, while `i2` ran."""
    written = good()
    record = {"id": 1, "fault": fault, "victim": "agent-1", **facts}
    written.nemesis[:] = [{**record, "kind": "begin", "at": 104.2}, {**record, "kind": "end", "at": 112.0}]
    return written


def exchange(at: float, call: str, **facts: Any) -> dict[str, Any]:
    seen = {"kind": "exchange", "at": at, "answered": at, "link": "agent-1", "server": 1, "status": 200}
    return {**seen, "call": call, "passed": True, **facts}


def start_of(instance: str) -> list[dict[str, Any]]:
    return [{"type": "start", "instance": instance, "token": "t", "status": None, "outcome": "ok"}]


def kill_of_a_keeper() -> Written:
    return killed_at_once(struck("kill-keeper", killed=1))


def killed_at_once(written: Written) -> Written:
    """`i2` has not said a word since before the fault, nor could it."""
    for record in records_of(written, "i2")[1:]:
        written.payloads.remove(record)
    row_of(written, "instance", "i2")["status"] = "lost"
    return written


def restarts() -> Written:
    written = struck("restart-servers", victim="server-1, server-2")
    written.database += [
        {"kind": "server", "id": id_, "url": url, "started_at": OFFSET + at}
        for id_, url, at in (("c", FIRST, 106.0), ("d", SECOND, 112.5))
    ]
    return written


def lost_answers() -> Written:
    written = struck("lose-replies")
    written.proxy[0]["passed"] = False
    return written


def crash() -> Written:
    written = struck("crash-postgres", victim="postgres")
    written.observer.append({"kind": "blind", "at": 105.0})
    return written


def wrong_clock() -> Written:
    written = struck("step-clocks", victim="server-1, agent-1")
    written.proxy.append(exchange(106.0, "heartbeat", agent_off=30.0, kept=[]))
    return written


def host_that_slept() -> Written:
    return killed_at_once(struck("pause-host"))


def database_that_slept() -> Written:
    written = struck("pause-postgres", victim="postgres")
    written.database[:] = [row for row in written.database if row["kind"] != "leader_write"]
    written.database.append(leader_write(FIRST, 103.9))
    return written


def full_disk() -> Written:
    written = struck("fill-disk")
    written.proxy.append(exchange(104.0, "reports", reports=start_of("i2")))
    written.proxy += [
        exchange(106.0 + number, "reports", link="agent-2", reports=start_of(f"j{number}"))
        for number in range(6)
    ]
    return written


def works_on(written: Written) -> None:
    written.proxy.append(exchange(106.5, "reports", reports=start_of("i5")))


def had_not_begun_anything(written: Written) -> None:
    for record in written.proxy:
        if record.get("reports") and record["reports"][0]["type"] == "start" and record["link"] == "agent-1":
            record["at"] -= 20


def everybody_stops(written: Written) -> None:
    written.proxy.pop()


def everything_was_asked_for_by_hand(written: Written) -> None:
    for task in written.rows("task"):
        task["schedule_id"] = None


Spoil = Callable[[Written], object]


def facts(**told: Any) -> Spoil:
    """Whoever made the fault has something else to tell of it."""
    return lambda written: [record.update(told) for record in written.nemesis]


def moved(seconds: float) -> Spoil:
    """It was made at another time, when what else there was was over or yet to come."""
    return lambda written: [record.update(at=record["at"] + seconds) for record in written.nemesis]


def ended(at: float) -> Spoil:
    """It was over sooner."""
    return lambda written: written.nemesis[-1].update(at=at)


def somebody_else(written: Written) -> None:
    """All that ran did so elsewhere."""
    for row in written.rows("instance"):
        row["agent"] = "agent-2"


def nothing_ran(written: Written) -> None:
    written.payloads.clear()


def nothing_was_said(written: Written) -> None:
    written.proxy.clear()


def all_was_said_to(server: int) -> Spoil:
    return lambda written: [record.update(server=server) for record in written.proxy]


def it_survived(written: Written) -> None:
    row_of(written, "instance", "i2").update(status="succeeded")


def it_ended_by_itself(written: Written) -> None:
    last = records_of(written, "i2")[-1]
    written.payloads.append({**last, "at": 104.3, "kind": "end"})


def nothing_was_written_before(written: Written) -> None:
    written.rows("leader_write")[0]["committed_at"] -= 20


def of_the_lost_answer(**told: Any) -> Spoil:
    return lambda written: written.proxy[0]["reports"][0].update(told)


def of_what_was_said_last(**told: Any) -> Spoil:
    return lambda written: written.proxy[-1].update(told)


def of_the_start(**told: Any) -> Spoil:
    """Of the victim's own, before its disk was full."""

    def spoil(written: Written) -> None:
        had_not_begun_anything(written)
        record = next(one for one in written.proxy if one["at"] == 84.0)
        record["at"] = 104.0
        record["reports"][0].update(told)

    return spoil


def others_began_before(written: Written) -> None:
    """And hardly anything since the disk was full."""
    for record in written.proxy[-7:]:
        record["at"] -= 5.0 if record["link"] == "agent-1" else 4.6


def each_of_two_others_began_half_as_much(written: Written) -> None:
    for record in written.proxy[-3:]:
        record["link"] = "agent-3"


# fault → (a history in which it was felt, and in which ways it might not have been)
ON_THE_LINE = (nothing_ran, somebody_else, facts(felt=0))
FELT: dict[str, tuple[Callable[[], Written], tuple[Spoil, ...]]] = {
    "kill-leader": (
        lambda: struck("kill-leader", victim="server-1", epoch=1),
        (
            facts(epoch=None),
            nobody_took_over,
            another_fault_made_one_take_over,
            nothing_was_generated_afterwards,
            everything_was_asked_for_by_hand,
        ),
    ),
    "stop-leader": (lambda: struck("stop-leader", victim="server-1", epoch=1), (nobody_took_over,)),
    "cut-leader": (
        lambda: struck("cut-leader", victim="server-1", felt=3, epoch=1),
        (facts(felt=0), nobody_took_over),
    ),
    "cut-leader-there": (
        lambda: struck("cut-leader-there", victim="server-1", felt=3, epoch=1),
        (facts(felt=0), facts(epoch=2)),
    ),
    "cut-leader-back": (
        lambda: struck("cut-leader-back", victim="server-1", felt=3, epoch=1),
        (facts(felt=0), nobody_took_over),
    ),
    "kill-server": (
        lambda: struck("kill-server", victim="server-1"),
        (nothing_was_said, all_was_said_to(2), moved(40), moved(-10)),
    ),
    "stop-server": (
        lambda: struck("stop-server", victim="server-1"),
        (nothing_was_said, all_was_said_to(2)),
    ),
    "cut-server": (
        lambda: struck("cut-server", victim="server-1", felt=1),
        (facts(felt=0), nothing_was_said, all_was_said_to(2)),
    ),
    "restart-servers": (
        restarts,
        (
            lambda written: written.drop(written.rows("server")[-1]),
            # Another fault has replaced it, before or later.
            lambda written: written.rows("server")[-1].update(started_at=OFFSET + 103),
            lambda written: written.rows("server")[-1].update(started_at=OFFSET + 118),
            lambda written: written.database.clear(),
        ),
    ),
    "kill-agent": (
        lambda: struck("kill-agent"),
        # By half a second: what runs has just ended, and said so.
        (nothing_ran, somebody_else, moved(40), moved(-10), moved(0.5)),
    ),
    "stop-agent": (lambda: struck("stop-agent"), (nothing_ran, somebody_else)),
    "stop-keeper": (lambda: struck("stop-keeper"), (nothing_ran, somebody_else)),
    "kill-keeper": (
        kill_of_a_keeper,
        # By three: what was killed had been silent for long before.
        (facts(killed=0), it_survived, it_ended_by_itself, somebody_else, moved(3)),
    ),
    "pause-host": (host_that_slept, (it_survived, it_ended_by_itself, somebody_else)),
    "cut-agent": (lambda: struck("cut-agent", felt=1), ON_THE_LINE),
    "cut-agent-there": (lambda: struck("cut-agent-there", felt=1), ON_THE_LINE),
    "cut-agent-back": (lambda: struck("cut-agent-back", felt=1), ON_THE_LINE),
    "lose-replies": (
        lost_answers,
        (
            lambda written: written.proxy[0].update(passed=True),
            lambda written: written.proxy[0].update(status=503),
            of_the_lost_answer(type="start"),
            of_the_lost_answer(outcome="stale"),
        ),
    ),
    "fill-disk": (
        full_disk,
        (
            works_on,
            had_not_begun_anything,
            everybody_stops,
            of_the_start(outcome="stale"),
            ended(108.0),
            others_began_before,
            each_of_two_others_began_half_as_much,
        ),
    ),
    "step-clocks": (
        wrong_clock,
        (
            of_what_was_said_last(agent_off=0.1),
            of_what_was_said_last(link="agent-2"),
            of_what_was_said_last(at=113.0),
            moved(10),
        ),
    ),
    "crash-postgres": (crash, (lambda written: written.observer.pop(), moved(-40), moved(10))),
    "pause-postgres": (
        database_that_slept,
        (lambda written: written.database.append(leader_write(FIRST, 108.0)), nothing_was_written_before),
    ),
}
UNFELT = [(fault, spoil) for fault, (_, spoils) in FELT.items() for spoil in spoils]


def test_every_fault_has_its_own_sign() -> None:
    assert set(FELT) == set(FAULTS)


@pytest.mark.parametrize("fault", FELT)
def test_each_fault_can_be_felt(fault: str) -> None:
    verdict = FELT[fault][0]().judged()[f"fault: {fault}"]
    assert verdict.outcome is Outcome.PASS, verdict.summary


@pytest.mark.parametrize(
    ("fault", "change"),
    [
        ("step-clocks", of_what_was_said_last(agent_off=-30.0)),
        # At the end of something when the signal came, and when all was over.
        ("pause-postgres", lambda written: written.database.append(leader_write(FIRST, 104.5))),
        ("pause-postgres", lambda written: written.database.append(leader_write(FIRST, 112.5))),
    ],
)
def test_a_fault_is_felt_though_it_might_not_seem_so(fault: str, change: Spoil) -> None:
    written = FELT[fault][0]()
    change(written)
    assert written.judged()[f"fault: {fault}"].outcome is Outcome.PASS


@pytest.mark.parametrize(("fault", "spoil"), UNFELT)
def test_a_fault_without_its_sign_proves_nothing(fault: str, spoil: Spoil) -> None:
    written = FELT[fault][0]()
    spoil(written)
    verdict = written.judged()[f"fault: {fault}"]
    assert verdict.outcome is Outcome.UNKNOWN, verdict.summary
    assert verdict.anomalies


def test_what_is_known_of_a_fault_only_when_it_is_over_counts() -> None:
    written = struck("cut-agent", felt=1)
    del written.nemesis[0]["felt"]
    assert written.judged()["fault: cut-agent"].outcome is Outcome.PASS
