"""A fault that nobody felt proves nothing: the judge says so."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hetuflow_selftest.nemesis.faults import FAULTS
from hetuflow_selftest.oracle.verdict import Outcome
from tests.support.histories import (
    FIRST,
    OFFSET,
    SECOND,
    Written,
    good,
    leader_write,
    records_of,
    row_of,
)


def the_victim_did_not_lead(written: Written) -> None:
    for record in written.nemesis:
        del record["epoch"]


def nobody_took_over(written: Written) -> None:
    written.drop(written.rows("leader_term")[1])


def nothing_was_generated_afterwards(written: Written) -> None:
    for task in written.rows("task"):
        task["created_at"] = OFFSET + 95


def it_could_not_be_made(written: Written) -> None:
    written.nemesis[:] = [{"kind": "unsupported", "at": 108.0, "fault": "kill-leader", "why": "no right to"}]


@pytest.mark.parametrize(
    "without_effect",
    [the_victim_did_not_lead, nobody_took_over, nothing_was_generated_afterwards, it_could_not_be_made],
)
def test_a_fault_without_effect_proves_nothing(without_effect: Callable[[Written], None]) -> None:
    written = good()
    without_effect(written)
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
        {"kind": "server", "id": id_, "url": url} for id_, url in (("c", FIRST), ("d", SECOND))
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
    written.proxy[:] = [record for record in written.proxy if record["at"] != 104.0]


def everybody_stops(written: Written) -> None:
    written.proxy.pop()


FELT: dict[str, tuple[Written, Callable[[Written], object]]] = {
    "kill-server": (struck("kill-server", victim="server-1"), lambda written: written.proxy.clear()),
    "cut-leader": (
        struck("cut-leader", victim="server-1", felt=3, epoch=1),
        lambda written: [record.update(felt=0) for record in written.nemesis],
    ),
    "cut-leader-there": (
        struck("cut-leader-there", victim="server-1", felt=3, epoch=1),
        lambda written: [record.update(epoch=2) for record in written.nemesis],
    ),
    "cut-leader-back": (struck("cut-leader-back", victim="server-1", felt=3, epoch=1), nobody_took_over),
    "cut-server": (
        struck("cut-server", victim="server-1", felt=1),
        lambda written: [record.update(felt=0) for record in written.nemesis],
    ),
    "stop-server": (struck("stop-server", victim="server-1"), lambda written: written.proxy.clear()),
    "stop-leader": (struck("stop-leader", victim="server-1", epoch=1), nobody_took_over),
    "restart-servers": (restarts(), lambda written: written.drop(written.rows("server")[-1])),
    "kill-agent": (struck("kill-agent"), lambda written: written.payloads.clear()),
    "stop-agent": (struck("stop-agent"), lambda written: written.payloads.clear()),
    "kill-keeper": (
        kill_of_a_keeper(),
        lambda written: [record.update(killed=0) for record in written.nemesis],
    ),
    "cut-agent": (
        struck("cut-agent", felt=1),
        lambda written: [record.update(felt=0) for record in written.nemesis],
    ),
    "cut-agent-there": (struck("cut-agent-there", felt=1), lambda written: written.payloads.clear()),
    "cut-agent-back": (
        struck("cut-agent-back", felt=1),
        lambda written: [record.update(felt=0) for record in written.nemesis],
    ),
    "stop-keeper": (struck("stop-keeper"), lambda written: written.payloads.clear()),
    "pause-host": (
        host_that_slept(),
        lambda written: row_of(written, "instance", "i2").update(status="succeeded"),
    ),
    "pause-postgres": (
        database_that_slept(),
        lambda written: written.database.append(leader_write(FIRST, 108.0)),
    ),
    "lose-replies": (lost_answers(), lambda written: written.proxy[0].update(passed=True)),
    "crash-postgres": (crash(), lambda written: written.observer.pop()),
    "step-clocks": (wrong_clock(), lambda written: written.proxy[-1].update(agent_off=0.1)),
    "fill-disk": (full_disk(), works_on),
}


def test_every_fault_has_its_own_sign() -> None:
    assert {*FELT, "kill-leader"} == set(FAULTS)


@pytest.mark.parametrize("spoil", [works_on, had_not_begun_anything, everybody_stops])
def test_a_disk_is_full_when_its_agent_alone_stops(spoil: Callable[[Written], None]) -> None:
    written = full_disk()
    spoil(written)
    assert written.judged()["fault: fill-disk"].outcome is Outcome.UNKNOWN


def test_an_answer_to_a_start_is_not_the_one_that_has_to_be_lost() -> None:
    written = lost_answers()
    written.proxy[0]["reports"][0]["type"] = "start"
    assert written.judged()["fault: lose-replies"].outcome is Outcome.UNKNOWN


@pytest.mark.parametrize("fault", FELT)
def test_each_fault_has_to_be_felt(fault: str) -> None:
    written, without = FELT[fault]
    verdict = written.judged()[f"fault: {fault}"]
    assert verdict.outcome is Outcome.PASS, verdict.summary
    without(written)
    assert written.judged()[f"fault: {fault}"].outcome is Outcome.UNKNOWN
