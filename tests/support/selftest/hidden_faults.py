"""Good histories spoilt where it is easily overlooked: beside what is right, or where nobody heard of it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hetuflow_selftest.oracle.ids import scheduled_task
from tests.support.selftest.histories import (
    EXCLUSIVE,
    FIRST,
    OFFSET,
    SCHEDULE,
    Written,
    add_attempt,
    add_fire,
    add_task,
    leader_seen,
    leader_write,
    log_of,
    records_of,
    report_of,
    row_of,
    unseen,
)

BRIEF = "01890f3e-7b3c-7cc0-98c4-dc0c0c073992"


def ended(what: str, id_: str, status: str) -> dict[str, Any]:
    return {"kind": "ended", "at": 119.0, "what": what, "id": id_, "status": status}


def exchange_of(written: Written, instance: str) -> dict[str, Any]:
    report = report_of(written, instance)
    return next(record for record in written.proxy if report in record.get("reports", ()))


def another_finisher_in_the_end(written: Written) -> None:
    """Of the same status: only the token tells."""
    written.observer.append(ended("instance", "twice-0", "lost token-of-another"))


def an_end_is_gone_in_the_end(written: Written) -> None:
    written.observer.append(ended("instance", "gone", "lost t"))


def an_end_changes_and_changes_back(written: Written) -> None:
    written.observer += [ended("task", "run", "failed"), ended("task", "run", "succeeded")]


def a_process_is_left_of_one_kind(written: Written) -> None:
    """There are several looks, each for something else."""
    written.scene[-1]["left"] = {18: "keeper"}
    written.scene.append({"kind": "processes", "at": 121.5, "left": {}})


def a_process_is_left_of_another_kind(written: Written) -> None:
    written.scene.append({"kind": "processes", "at": 121.5, "left": {19: "payload"}})


def a_write_before_anybody_led(written: Written) -> None:
    written.database.append(leader_write(FIRST, 80.0))


def a_leader_that_is_no_server(written: Written) -> None:
    written.drop(row_of(written, "server", "b"))


def a_former_leader_writes_while_the_next_does(written: Written) -> None:
    written.database.append(leader_write(FIRST, 118.0))


def two_were_seen_to_hold_a_term(written: Written) -> None:
    """Nothing of it is left in the end."""
    written.observer += [leader_seen(105.0, "c", 3), leader_seen(106.0, "d", 3)]


def an_answer_nobody_heard_was_not_true(written: Written) -> None:
    exchange_of(written, "i3")["passed"] = False
    written.drop(row_of(written, "instance", "i3"))
    unseen(written, "i3")


def an_acknowledged_cancel_has_changed(written: Written) -> None:
    row_of(written, "instance", "cancelled-1")["status"] = "lost"
    unseen(written, "cancelled-1")


def a_late_result_of_another_is_kept(written: Written) -> None:
    written.rows("late_report")[0]["token"] = "token-of-another"


def a_late_result_is_refused_otherwise(written: Written) -> None:
    late = {**report_of(written, "i0"), "token": "x", "outcome": "cancelled"}
    written.proxy.append({**written.proxy[0], "reports": [late]})


def a_second_task_was_cancelled(written: Written) -> None:
    add_task(written, "run-again", 101, "again-1", job="by-hand", status="cancelled")


def an_acknowledged_event_is_gone(written: Written) -> None:
    written.drop(row_of(written, "event", "e"))
    an_event_has_no_task(written)


def an_event_has_no_task(written: Written) -> None:
    written.drop(row_of(written, "task", "event"))
    unseen(written, "event")


def an_event_nobody_acknowledged_started_nothing(written: Written) -> None:
    next(record for record in written.clients if record["op"] == "emit")["answered"] = None
    an_event_has_no_task(written)


def a_cancelled_task_is_gone(written: Written) -> None:
    written.drop(row_of(written, "task", "cancelled"))
    unseen(written, "cancelled")


def a_flow_succeeds_without_a_node(written: Written) -> None:
    row_of(written, "task", "n21").update(status="failed", reason="exit_code")
    unseen(written, "n21")


def a_node_runs_twice(written: Written) -> None:
    add_task(written, "n1-again", 101, "n1-again-1", flow_node="first", flow_run_id="flow")


def all_nodes_begin_before_the_first_has_ended(written: Written) -> None:
    records_of(written, "n1-1")[-1]["at"] = 103.3


def one_of_many_nodes_begins_too_soon(written: Written) -> None:
    for record in records_of(written, "n20-1"):
        record["at"] -= 0.9


def a_node_begins_before_the_second_attempt_has_ended(written: Written) -> None:
    add_attempt(written, "n1", 100, "n1-0", "lost")
    all_nodes_begin_before_the_first_has_ended(written)


def one_of_two_fires_is_missing(written: Written) -> None:
    """The one the schedule ends with."""
    task = written.rows("task")[9]
    written.drop(task)
    unseen(written, task["id"])


def a_fire_of_a_schedule_without_end_is_missing(written: Written) -> None:
    written.clients[:] = [
        record
        for record in written.clients
        if (record["op"], record.get("schedule")) != ("unschedule", SCHEDULE)
    ]
    add_fire(written, 120, 10)
    one_of_two_fires_is_missing(written)


def a_fire_long_before_its_schedule(written: Written) -> None:
    add_fire(written, 94, 99)


def a_fire_is_left_out_for_another_reason(written: Written) -> None:
    task = next(row for row in written.rows("task") if row["schedule_id"] == EXCLUSIVE)
    task.update(status="skipped", reason="deadline")
    unseen(written, task["id"])


def a_fire_that_may_wait_is_cancelled(written: Written) -> None:
    next(record for record in written.clients if record.get("overlap"))["overlap"] = "queue_one"
    task = next(row for row in written.rows("task") if row["schedule_id"] == EXCLUSIVE)
    task.update(status="cancelled", reason="overlap")
    unseen(written, task["id"])


def it_was_cancelled_after_its_losses(written: Written) -> None:
    written.rows("task")[3] |= {"status": "cancelled", "reason": "by_hand", "losses": 3}
    unseen(written, written.rows("task")[3]["id"])


def a_fire_of_a_brief_schedule_is_missing(written: Written) -> None:
    """Somebody had come to it: it has made one of its two."""
    asked = {"kind": "operation", "schedule": BRIEF, "job": "b", "name": "s", "spec": {"every": "1s"}}
    written.clients += [
        {**asked, "op": "schedule", "at": 112.9, "answered": 113.2},
        {**asked, "op": "unschedule", "at": 115.1, "answered": 115.2},
    ]
    add_task(written, scheduled_task(BRIEF, OFFSET + 114), 114, "b114", schedule_id=BRIEF)


def a_fire_is_left_out_where_all_may_run(written: Written) -> None:
    task = written.rows("task")[3]
    task.update(status="skipped", reason="overlap")
    unseen(written, task["id"])


def a_task_succeeds_whose_process_was_killed(written: Written) -> None:
    end = records_of(written, "i3")[-1]
    end["kind"] = "told"


def it_started_early_in_trouble(written: Written) -> None:
    records_of(written, "i4")[0]["at"] -= 0.3


def it_started_early_before_another_attempt(written: Written) -> None:
    """The first process counts, whichever wrote first into the history."""
    add_attempt(written, written.rows("task")[0]["id"], 99.3, "i0-0", "lost")


def it_started_late_just_before_a_fault(written: Written) -> None:
    for record in records_of(written, "i3"):
        record["at"] += 1.5


def it_started_late_once_all_had_recovered(written: Written) -> None:
    for record in records_of(written, "i7"):
        record["at"] += 1.5


def it_started_late_and_was_due_anew(written: Written) -> None:
    """An attempt that is lost moves the time its task is due at; that it fired does not move."""
    for record in records_of(written, "i0"):
        record["at"] += 1.5
    written.rows("task")[0]["due_at"] += 1.5


def the_third_attempt_overlaps_the_second(written: Written) -> None:
    add_attempt(written, "run", 95, "run-b", "lost")
    add_attempt(written, "run", 101.2, "run-2", "lost")


def an_attempt_that_never_ended_overlaps(written: Written) -> None:
    """It was last seen alive after the next one had begun."""
    add_attempt(written, "run", 105, "run-2", "lost")
    records_of(written, "run-1")[-1].update(kind="told", at=105.6)


def an_attempt_overlaps_whose_signs_came_in_another_order(written: Written) -> None:
    an_attempt_that_never_ended_overlaps(written)
    written.payloads.reverse()


def an_attempt_lives_on_after_its_end(written: Written) -> None:
    add_attempt(written, "run", 105, "run-2", "lost")
    last = records_of(written, "run-1")[-1]
    written.payloads.append({**last, "kind": "told", "at": 105.6})


def fires_overlap_where_one_waits(written: Written) -> None:
    next(record for record in written.clients if record.get("overlap"))["overlap"] = "queue_one"
    records_of(written, "x114")[-1]["at"] += 1.8


def a_slot_lives_in_three(written: Written) -> None:
    add_task(written, "d2", 107, "d2-1", schedule_id="of-daemon")
    row_of(written, "instance", "d2-1")["slot"] = 0
    records_of(written, "d1-1")[-1]["at"] += 0.9


def somebody_heard_of_late_is_lost(written: Written) -> None:
    """Within half of a lease; what was heard long before does not matter."""
    row_of(written, "instance", "i3")["reason"] = "lease_expired"
    heartbeat = {"kind": "exchange", "link": "agent-1", "server": 1, "call": "heartbeat", "status": 200}
    for at in (101.0, 104.3):
        written.proxy.append({**heartbeat, "at": at, "answered": at + 0.1, "passed": True, "kept": ["i3"]})


def a_chunk_holds_less_than_it_says(written: Written) -> None:
    log_of(written, "i3")["chunks"][0][2] = 6


def chunks_overlap(written: Written) -> None:
    log_of(written, "i3")["chunks"] = [[0, 4, 4], [3, 3, 3], [6, 1, 1]]


def a_second_chunk_leaves_a_gap(written: Written) -> None:
    log_of(written, "i3")["chunks"] = [[0, 4, 4], [5, 3, 3]]


def the_log_of_stderr_has_taken_the_place(written: Written) -> None:
    log_of(written, "i3")["stream"] = "stderr"


def the_log_is_of_another_claim(written: Written) -> None:
    log_of(written, "i3")["claim_no"] = 2


def the_last_line_is_cut(written: Written) -> None:
    log_of(written, "i3")["text"] = "i3 7"


def the_log_of_a_lost_attempt_repeats_itself(written: Written) -> None:
    add_attempt(written, "run", 95, "run-0", "lost")
    log_of(written, "run-0")["text"] = "run-0 7 1\nrun-0 7 1\n"


def a_log_is_that_of_the_process_before(written: Written) -> None:
    """All lines are there, of a process that is not the one which ended."""
    log_of(written, "i3")["text"] = "i3 6 1\n"


# (what is spoilt, the verdict that turns red, what it says)
HIDDEN: list[tuple[Callable[[Written], None], str, str]] = [
    (another_finisher_in_the_end, "what has ended stays so", "was lost token-of-another and is lost token"),
    (an_end_is_gone_in_the_end, "what has ended stays so", "gone was lost t and is None in the end"),
    (an_end_changes_and_changes_back, "what has ended stays so", "run was succeeded and is failed"),
    (a_process_is_left_of_one_kind, "no process is left", "process 18 (keeper) is left"),
    (a_process_is_left_of_another_kind, "no process is left", "process 19 (payload) is left"),
    (a_write_before_anybody_led, "no write of a former leader", "in term 0, which is nobody's"),
    (a_leader_that_is_no_server, "no write of a former leader", "in term 2, which is b's"),
    (a_former_leader_writes_while_the_next_does, "no write of a former leader", "1 wrote fires in term 2"),
    (two_were_seen_to_hold_a_term, "one holder per term", "term 3 has 2 holders: c, d"),
    (
        an_answer_nobody_heard_was_not_true,
        "acknowledged finishes are final",
        "i3 was acknowledged and is not",
    ),
    (an_acknowledged_cancel_has_changed, "acknowledged finishes are final", "as cancelled and is lost"),
    (a_late_result_of_another_is_kept, "late finishers are refused", "result of twice-1 was not kept"),
    (a_late_result_is_refused_otherwise, "late finishers are refused", "result of i0 was not kept"),
    (a_second_task_was_cancelled, "each request ran once", "by-hand was asked for 2 times and has 3"),
    (an_acknowledged_event_is_gone, "each event started one task", "acknowledged and is there 0 times"),
    (
        an_event_nobody_acknowledged_started_nothing,
        "each event started one task",
        "is there 1 times and started 0",
    ),
    (a_cancelled_task_is_gone, "cancelled is cancelled", "was cancelled and is None"),
    (a_flow_succeeds_without_a_node, "flows ran node by node", "{'first': 1, 'each': 2, 'last': 1}"),
    (a_node_runs_twice, "flows ran node by node", "{'first': 2, 'each': 3, 'last': 1}"),
    (
        all_nodes_begin_before_the_first_has_ended,
        "flows ran node by node",
        "each began before first had ended",
    ),
    (one_of_many_nodes_begins_too_soon, "flows ran node by node", "each began before first had ended"),
    (
        a_node_begins_before_the_second_attempt_has_ended,
        "flows ran node by node",
        "each began before first had ended",
    ),
    (one_of_two_fires_is_missing, "no fire is missing", "j/s has no task for 1700000118"),
    (a_fire_of_a_schedule_without_end_is_missing, "no fire is missing", "no task for 1700000118"),
    (a_fire_long_before_its_schedule, "no fire was invented", "1700000094.000, which is no fire"),
    (a_fire_is_left_out_for_another_reason, "every fire ran", "ended skipped (deadline)"),
    (a_fire_that_may_wait_is_cancelled, "every fire ran", "ended cancelled (overlap)"),
    (it_was_cancelled_after_its_losses, "every fire ran", "ended cancelled (by_hand)"),
    (a_fire_of_a_brief_schedule_is_missing, "no fire is missing", "b/s has no task for 1700000115"),
    (a_fire_is_left_out_where_all_may_run, "every fire ran", "ended skipped (overlap)"),
    (a_task_succeeds_whose_process_was_killed, "every fire ran", "succeeded, and no process of it did"),
    (it_started_early_in_trouble, "nothing started early", "due 108.00, started -0.20 s"),
    (it_started_early_before_another_attempt, "nothing started early", "due 100.00, started -0.60 s"),
    (it_started_late_just_before_a_fault, "starts on time, calm", "due 106.00, started +1.60 s"),
    (it_started_late_and_was_due_anew, "starts on time, calm", "due 100.00, started +1.60 s"),
    (it_started_late_once_all_had_recovered, "starts on time, calm", "due 114.00, started +1.60 s"),
    (the_third_attempt_overlaps_the_second, "no two attempts at once", "run: process 7 lived until 101.50"),
    (an_attempt_that_never_ended_overlaps, "no two attempts at once", "process 7 lived until 105.60"),
    (
        an_attempt_overlaps_whose_signs_came_in_another_order,
        "no two attempts at once",
        "process 7 lived until 105.60",
    ),
    (an_attempt_lives_on_after_its_end, "no two attempts at once", "process 7 lived until 105.60"),
    (fires_overlap_where_one_waits, "no overlap where none is allowed", ": process 7 lived until 116.30"),
    (a_slot_lives_in_three, "one life per slot of a daemon", "process 7 lived until 107.40"),
    (somebody_heard_of_late_is_lost, "nothing that was heard of is lost", "i3 was lost 2.30 s after"),
    (a_chunk_holds_less_than_it_says, "log lines without gap or repeat", "a chunk at 0 of 7 behind 0"),
    (chunks_overlap, "log lines without gap or repeat", "a chunk at 3 of 3 behind 4"),
    (a_second_chunk_leaves_a_gap, "log lines without gap or repeat", "a chunk at 5 of 3 behind 4"),
    (
        the_log_of_stderr_has_taken_the_place,
        "log lines without gap or repeat",
        "of i3, which succeeded, has 0",
    ),
    (the_log_is_of_another_claim, "log lines without gap or repeat", "of i3, which succeeded, has 0 lines"),
    (the_last_line_is_cut, "log lines without gap or repeat", "has 1 lines of 1, of which line 1 is wrong"),
    (
        the_log_of_a_lost_attempt_repeats_itself,
        "log lines without gap or repeat",
        "which lost, has 2 lines of 1",
    ),
    (a_log_is_that_of_the_process_before, "log lines without gap or repeat", "line 1 is wrong"),
]
