"""The judge: a good history passes, and each planted fault turns the verdict about it red."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any
from uuid import UUID

import pytest

from hetuflow_core.ids import task_of_schedule
from hetuflow_selftest.oracle.calendar import fires
from hetuflow_selftest.oracle.evidence import Histories
from hetuflow_selftest.oracle.ids import scheduled_task
from hetuflow_selftest.oracle.judge import judge
from hetuflow_selftest.oracle.verdict import Outcome, Verdict, overall

# Boottime 0 is an even second, so that both clocks show multiples of the interval together.
OFFSET = 1_700_000_000.0
SCHEDULE = "01890f3e-7b3c-7cc0-98c4-dc0c0c07398f"
FIRST, SECOND = "http://127.0.0.1:1", "http://127.0.0.1:2"
BOUNDS = {"calm_latency": 1.0, "fault_latency": 5.0, "recovery": 2.0, "tolerance": 0.05, "settling": 10.0}


@dataclass
class Written:
    """Histories that can still be changed."""

    clients: list[dict[str, Any]] = field(default_factory=list)
    payloads: list[dict[str, Any]] = field(default_factory=list)
    proxy: list[dict[str, Any]] = field(default_factory=list)
    nemesis: list[dict[str, Any]] = field(default_factory=list)
    observer: list[dict[str, Any]] = field(default_factory=list)
    database: list[dict[str, Any]] = field(default_factory=list)
    scene: list[dict[str, Any]] = field(default_factory=list)

    def rows(self, table: str) -> list[dict[str, Any]]:
        return [row for row in self.database if row["kind"] == table]

    def drop(self, row: dict[str, Any]) -> None:
        self.database.remove(row)

    def judged(self) -> dict[str, Verdict]:
        return {verdict.name: verdict for verdict in judge(Histories(**vars(self)))}


def good() -> Written:
    """Ten fires, every two seconds from 100 to 120; the leader is killed at 108 and back at 110."""
    written = Written()
    operation = {"kind": "operation", "schedule": SCHEDULE, "job": "j", "name": "s", "spec": {"every": "2s"}}
    written.clients += [
        {**operation, "op": "schedule", "at": 99.0, "answered": 99.5},
        {**operation, "op": "unschedule", "at": 119.5, "answered": 120.5},
    ]
    for number, second in enumerate(range(100, 120, 2)):
        add_fire(written, second, number)
    written.database += [
        {"kind": "server", "id": "a", "url": FIRST},
        {"kind": "server", "id": "b", "url": SECOND},
        {"kind": "leader_term", "epoch": 1, "holder": "a", "committed_at": OFFSET + 90},
        {"kind": "leader_term", "epoch": 2, "holder": "b", "committed_at": OFFSET + 109},
        leader_write(FIRST, 107.9),
        leader_write(SECOND, 109.1),
    ]
    fault = {"id": 1, "fault": "kill-leader", "victim": "server-1", "holder": "a", "epoch": 1, "died": True}
    written.nemesis += [{**fault, "kind": "begin", "at": 108.0}, {**fault, "kind": "end", "at": 110.0}]
    written.observer.append(leader_seen(100.0, "a", 1))
    written.scene += [
        {"kind": "begin", "at": 90.0, "bounds": BOUNDS, "wall_minus_boottime": OFFSET},
        {"kind": "over", "at": 120.5, "ended_at": 120.5},
        {"kind": "processes", "at": 121.0, "left": {}},
    ]
    return written


def add_fire(written: Written, second: int, number: int) -> None:
    task = scheduled_task(SCHEDULE, OFFSET + second)
    said = {"task": task, "instance": f"i{number}", "pid": number}
    written.payloads += [
        {**said, "at": second + 0.1, "kind": "start", "line": 0},
        {**said, "at": second + 0.3, "kind": "line", "line": 1},
        {**said, "at": second + 0.5, "kind": "end", "line": 1},
    ]
    written.database.append(
        {
            "kind": "task",
            "id": task,
            "job": "j",
            "schedule_id": SCHEDULE,
            "backfill_id": None,
            "status": "succeeded",
            "reason": None,
            "losses": 0,
            "fire_at": OFFSET + second,
            "due_at": OFFSET + second,
            "created_at": OFFSET + second - 5,
        }
    )


def leader_write(url: str, at: float) -> dict[str, Any]:
    return {"kind": "leader_write", "server": "s", "url": url, "what": "fires", "committed_at": OFFSET + at}


def leader_seen(at: float, holder: str, epoch: int) -> dict[str, Any]:
    fence = {"fence_holder": holder, "fence_epoch": epoch}
    return {"kind": "leader", "at": at, "holder": holder, "epoch": epoch, **fence}


def test_a_good_history_passes() -> None:
    verdicts = good().judged()
    assert {name: verdict.outcome for name, verdict in verdicts.items()} == dict.fromkeys(
        verdicts, Outcome.PASS
    )
    assert overall(list(verdicts.values())) is Outcome.PASS
    assert verdicts["no fire is missing"].judged == 10


def a_fire_is_missing(written: Written) -> None:
    written.drop(written.rows("task")[3])


def a_fire_came_twice(written: Written) -> None:
    written.database.append({**written.rows("task")[3], "id": "another"})


def a_fire_at_no_time_of_its(written: Written) -> None:
    written.rows("task")[3]["fire_at"] += 1


def an_id_that_was_drawn(written: Written) -> None:
    written.rows("task")[3]["id"] = "01890f3e-7b3c-7cc0-98c4-dc0c0c073990"


def a_fire_after_its_schedule_ended(written: Written) -> None:
    add_fire(written, 124, 99)


def nothing_ran(written: Written) -> None:
    task = written.rows("task")[3]["id"]
    written.payloads[:] = [record for record in written.payloads if record["task"] != task]


def it_failed(written: Written) -> None:
    written.rows("task")[3] |= {"status": "failed", "reason": "lease_expired", "losses": 1}


def it_started_early(written: Written) -> None:
    written.payloads[0]["at"] -= 0.3


def it_started_late_in_calm(written: Written) -> None:
    for record in written.payloads[:3]:
        record["at"] += 1.5


def it_started_late_in_trouble(written: Written) -> None:
    for record in written.payloads[12:15]:
        record["at"] += 5.5


def two_hold_one_term(written: Written) -> None:
    written.observer.append(leader_seen(111.0, "c", 2))


def the_fence_is_anothers(written: Written) -> None:
    written.observer[0]["fence_holder"] = "b"


def a_term_comes_back(written: Written) -> None:
    written.observer += [leader_seen(111.0, "b", 2), leader_seen(112.0, "a", 1)]


def the_dead_lead_again(written: Written) -> None:
    written.rows("leader_term")[1]["holder"] = "a"


def a_former_leader_writes(written: Written) -> None:
    written.database.append(leader_write(FIRST, 109.2))


def a_leader_writes_too_soon(written: Written) -> None:
    written.database.append(leader_write(SECOND, 108.9))


def a_task_does_not_end(written: Written) -> None:
    written.rows("task")[3]["status"] = "pending"


def an_instance_does_not_end(written: Written) -> None:
    written.database.append({"kind": "live_instance", "id": "i", "status": "reserved"})


def a_process_is_left(written: Written) -> None:
    written.scene[-1]["left"] = {17: "sleep 100"}


@pytest.mark.parametrize(
    ("plant", "red"),
    [
        (a_fire_is_missing, "no fire is missing"),
        (a_fire_came_twice, "no fire came twice"),
        (a_fire_at_no_time_of_its, "no fire was invented"),
        (an_id_that_was_drawn, "no fire was invented"),
        (a_fire_after_its_schedule_ended, "no fire was invented"),
        (nothing_ran, "every fire ran"),
        (it_failed, "every fire ran"),
        (it_started_early, "nothing started early"),
        (it_started_late_in_calm, "starts on time, calm"),
        (it_started_late_in_trouble, "starts on time, faults"),
        (two_hold_one_term, "one holder per term"),
        (the_fence_is_anothers, "one holder per term"),
        (a_term_comes_back, "one holder per term"),
        (the_dead_lead_again, "one holder per term"),
        (a_former_leader_writes, "no write of a former leader"),
        (a_leader_writes_too_soon, "no write of a former leader"),
        (a_task_does_not_end, "everything has ended"),
        (an_instance_does_not_end, "everything has ended"),
        (a_process_is_left, "no process is left"),
    ],
)
def test_what_is_planted_is_found(plant: Callable[[Written], None], red: str) -> None:
    written = good()
    plant(written)
    verdicts = written.judged()
    assert verdicts[red].outcome is Outcome.FAIL, verdicts[red].summary
    assert verdicts[red].anomalies
    assert overall(list(verdicts.values())) is Outcome.FAIL


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


def test_nothing_to_look_at_is_no_pass() -> None:
    written = good()
    written.clients.clear()
    verdicts = written.judged()
    assert verdicts["no fire is missing"].outcome is Outcome.UNKNOWN
    assert overall(list(verdicts.values())) is Outcome.UNKNOWN
    assert overall([]) is Outcome.UNKNOWN


def test_quarantine_is_an_end_that_work_may_have() -> None:
    written = good()
    written.rows("task")[3] |= {"status": "failed", "reason": "quarantined", "losses": 3}
    assert written.judged()["every fire ran"].outcome is Outcome.PASS


@pytest.mark.parametrize("second", [1_700_000_000, 1_794_827_201])
def test_ids_are_those_of_the_documented_derivation(second: int) -> None:
    expected = task_of_schedule(UUID(SCHEDULE), datetime.fromtimestamp(second, UTC))
    assert scheduled_task(SCHEDULE, float(second)) == str(expected)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({"every": "2s"}, [2, 4, 6, 8]),
        ({"every": "3s"}, [3, 6, 9]),
        ({"every": "1m"}, []),
        ({"cron": "*/4 * * * * *"}, [4, 8]),
        ({"cron": "1-3,7 * * * * *"}, [1, 2, 3, 7]),
        ({"cron": "5/2 0 0 1 1 *"}, [5, 7, 9]),
        ({"cron": "* * * * * THU"}, None),
        ({"every": "soon"}, None),
    ],
)
def test_the_judge_reads_schedules_by_itself(spec: dict[str, str], expected: list[int] | None) -> None:
    if expected is None:
        with pytest.raises(ValueError, match="does not read"):
            fires(spec, 0.0, 10.0)
    else:
        assert fires(spec, 0.0, 9.5) == expected
