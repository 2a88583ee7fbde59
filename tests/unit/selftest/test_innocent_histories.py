"""What looks like a fault and is none: a judge that is always red says as little as one that never is."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from hetuflow_selftest.oracle.verdict import Anomaly, Outcome, judged
from tests.support.selftest.histories import (
    EXCLUSIVE,
    FIRST,
    SCHEDULE,
    SECOND,
    Written,
    add_attempt,
    add_task,
    good,
    leader_seen,
    leader_write,
    log_of,
    records_of,
    report_of,
    row_of,
    unseen,
)

ASKED: dict[str, Any] = {"kind": "operation", "at": 101.0, "answered": 101.1, "status": 200}


def of_schedule(written: Written, op: str, schedule: str) -> dict[str, Any]:
    return next(
        record for record in written.clients if (record["op"], record.get("schedule")) == (op, schedule)
    )


def exclusive_task(written: Written) -> dict[str, Any]:
    return next(row for row in written.rows("task") if row["schedule_id"] == EXCLUSIVE)


def a_leader_has_its_lock_and_not_yet_its_fence(written: Written) -> None:
    written.observer.append({**leader_seen(109.05, "b", 2), "fence_holder": "a", "fence_epoch": 1})


def one_that_stood_still_leads_again(written: Written) -> None:
    for record in written.nemesis:
        record["died"] = False
    written.rows("leader_term")[1]["holder"] = "a"
    written.rows("leader_write")[1]["url"] = FIRST


def a_leader_writes_in_the_instant_of_its_term(written: Written) -> None:
    written.database.append(leader_write(SECOND, 109.0))


def a_cancel_that_was_refused_changed_nothing(written: Written) -> None:
    written.clients.append({**ASKED, "op": "cancel", "task": "run", "status": 409})


def a_cancel_without_an_answer_was_done(written: Written) -> None:
    written.clients.append({**ASKED, "op": "cancel", "task": "run", "status": None, "answered": None})
    for table, id_ in (("task", "run"), ("instance", "run-1")):
        row_of(written, table, id_)["status"] = "cancelled"
        unseen(written, id_)
    report_of(written, "run-1")["status"] = "cancelled"


def what_ran_already_is_cancelled_and_begins_no_sooner(written: Written) -> None:
    """Who cancels is told that it is not over yet: an attempt that was under way may still begin."""
    next(record for record in written.clients if record["op"] == "cancel")["told_status"] = "running"
    for record in records_of(written, "cancelled-1"):
        record["at"] += 5


def a_flow_was_asked_for(written: Written) -> None:
    """It has no process of its own: its nodes have."""
    written.clients.append({**ASKED, "op": "run", "job": "flow", "told_id": "flow"})
    add_task(written, "flow", 101, "of-flow", job="flow")
    written.drop(row_of(written, "instance", "of-flow"))
    written.proxy.pop()
    written.payloads[:] = [record for record in written.payloads if record["task"] != "flow"]
    unseen(written, "of-flow")


def a_request_without_an_answer_did_nothing(written: Written) -> None:
    written.clients += [
        {**ASKED, "op": "emit", "key": "unheard", "status": None, "answered": None},
        {**ASKED, "op": "run", "job": "by-hand", "status": None, "answered": None, "told_id": None},
    ]


def a_schedule_without_an_answer_is_not_there(written: Written) -> None:
    asked = {**ASKED, "schedule": "unheard", "job": "u", "name": "s", "spec": {"every": "1s"}}
    written.clients += [
        {**asked, "op": "schedule", "answered": None, "status": None},
        {**asked, "op": "unschedule", "at": 110.0, "answered": 110.1},
    ]


def a_schedule_was_answered_after_its_first_fire(written: Written) -> None:
    of_schedule(written, "schedule", EXCLUSIVE)["at"] = 111.5


def a_schedule_was_asked_to_end_before_its_last_fire(written: Written) -> None:
    of_schedule(written, "unschedule", EXCLUSIVE)["answered"] = 119.5


def a_backfill_made_a_fire_again(written: Written) -> None:
    add_task(written, "filled", 106, "filled-1", schedule_id=SCHEDULE, backfill_id="b")


def left_out(overlap: str, status: str) -> Callable[[Written], None]:
    def change(written: Written) -> None:
        of_schedule(written, "schedule", EXCLUSIVE)["overlap"] = overlap
        task = exclusive_task(written)
        task.update(status=status, reason="overlap")
        unseen(written, task["id"])

    change.__name__ = f"{overlap}_{status}"
    return change


def what_had_to_wait_started_late(written: Written) -> None:
    for record in records_of(written, "x116"):
        record["at"] += 3


def it_started_late_for_a_fault_that_came_meanwhile(written: Written) -> None:
    for record in records_of(written, "i3"):
        record["at"] += 2.4


def it_started_late_while_all_recovered(written: Written) -> None:
    for record in records_of(written, "i6"):
        record["at"] += 1.5


def clocks_drifted_apart(written: Written) -> None:
    written.scene.append({"kind": "end", "at": 122.0, "clock_drift": -0.25})
    records_of(written, "i0")[0]["at"] -= 0.35


def a_second_attempt_starts_much_later(written: Written) -> None:
    add_attempt(written, written.rows("task")[0]["id"], 105, "i0-2", "lost")


def attempts_touch_within_what_clocks_can_tell(written: Written) -> None:
    add_attempt(written, "run", 101.36, "run-2", "lost")


def different_slots_and_daemons_live_at_once(written: Written) -> None:
    for number, facts in enumerate(({"slot": 1}, {"slot": 0, "job": "another"})):
        task, instance = f"e{number}", f"e{number}-1"
        add_task(written, task, 105, instance, schedule_id="of-daemon")
        row_of(written, "instance", instance).update(facts)


def the_answer_came_when_it_was_given_up(written: Written) -> None:
    """Asked just before, answered after: nothing was renewed by it."""
    row_of(written, "instance", "i3")["reason"] = "lease_expired"
    heartbeat = {"kind": "exchange", "link": "agent-1", "server": 1, "call": "heartbeat", "status": 200}
    written.proxy.append({**heartbeat, "at": 106.5, "answered": 106.7, "passed": True, "kept": ["i3"]})


def it_said_something_beside_its_log(written: Written) -> None:
    row = {"kind": "log", "instance": "i3", "claim_no": 1, "stream": "stderr", "text": "!"}
    written.database.append({**row, "chunks": [[0, 1, 1]]})


def an_earlier_claim_of_an_attempt_has_a_log(written: Written) -> None:
    """Its reservation expired; what counts is the log of the claim that ended it."""
    written.database.insert(0, {**log_of(written, "i3"), "text": "", "chunks": []})
    log_of(written, "i3")["claim_no"] = 1
    written.rows("log")[0]["claim_no"] = 0


def what_was_killed_has_half_a_line(written: Written) -> None:
    add_attempt(written, "run", 95, "run-0", "lost")
    log_of(written, "run-0")["text"] = "run-0 7 1\nrun-0 7"


def what_was_cancelled_has_part_of_its_log(written: Written) -> None:
    log_of(written, "cancelled-1")["text"] = ""


def signs_were_written_in_another_order(written: Written) -> None:
    """Each process writes for itself: nobody puts them in order."""
    written.payloads.reverse()


INNOCENT: list[Callable[[Written], None]] = [
    a_leader_has_its_lock_and_not_yet_its_fence,
    one_that_stood_still_leads_again,
    a_leader_writes_in_the_instant_of_its_term,
    a_cancel_that_was_refused_changed_nothing,
    a_cancel_without_an_answer_was_done,
    what_ran_already_is_cancelled_and_begins_no_sooner,
    a_flow_was_asked_for,
    a_request_without_an_answer_did_nothing,
    a_schedule_without_an_answer_is_not_there,
    a_schedule_was_answered_after_its_first_fire,
    a_schedule_was_asked_to_end_before_its_last_fire,
    a_backfill_made_a_fire_again,
    left_out("skip", "skipped"),
    left_out("queue_one", "skipped"),
    left_out("cancel_running", "skipped"),
    left_out("cancel_running", "cancelled"),
    what_had_to_wait_started_late,
    it_started_late_for_a_fault_that_came_meanwhile,
    it_started_late_while_all_recovered,
    clocks_drifted_apart,
    a_second_attempt_starts_much_later,
    attempts_touch_within_what_clocks_can_tell,
    different_slots_and_daemons_live_at_once,
    the_answer_came_when_it_was_given_up,
    it_said_something_beside_its_log,
    an_earlier_claim_of_an_attempt_has_a_log,
    what_was_killed_has_half_a_line,
    what_was_cancelled_has_part_of_its_log,
    signs_were_written_in_another_order,
]


@pytest.mark.parametrize("change", INNOCENT)
def test_what_is_right_is_not_found_wrong(change: Callable[[Written], None]) -> None:
    written = good()
    change(written)
    verdicts = written.judged()
    wrong = {
        name: [one.what for one in verdict.anomalies] or verdict.outcome
        for name, verdict in verdicts.items()
        if verdict.outcome is not Outcome.PASS
    }
    assert wrong == {}


def test_what_is_wrong_is_told_though_nothing_was_to_be_looked_at() -> None:
    verdict = judged("x", 0, "things", [Anomaly(str(number)) for number in range(30)])
    assert (verdict.outcome, len(verdict.anomalies), len(verdict.examples)) == (Outcome.FAIL, 30, 20)
