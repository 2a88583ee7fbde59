"""Good histories spoilt: for every verdict those that turn it red, and nothing else."""

from __future__ import annotations

from collections.abc import Callable

from hetuflow_selftest.oracle.ids import scheduled_task
from tests.support.selftest.histories import (
    EXCLUSIVE,
    FIRST,
    OFFSET,
    SCHEDULE,
    SECOND,
    Written,
    add_attempt,
    add_fire,
    add_task,
    leader_seen,
    leader_write,
    log_of,
    records_of,
    rename_task,
    report_of,
    row_of,
    unseen,
)


def a_fire_is_missing(written: Written) -> None:
    task = written.rows("task")[3]
    written.drop(task)
    unseen(written, task["id"])


def a_fire_came_twice(written: Written) -> None:
    # Whose id follows from the fire cannot be there twice: this one was drawn, too.
    add_task(written, "another", 106.0, "again", schedule_id=SCHEDULE)


def a_fire_at_no_time_of_its(written: Written) -> None:
    add_task(written, scheduled_task(SCHEDULE, OFFSET + 105), 105, "odd", schedule_id=SCHEDULE)


def an_id_that_was_drawn(written: Written) -> None:
    rename_task(written, written.rows("task")[3]["id"], "01890f3e-7b3c-7cc0-98c4-dc0c0c073990")


def a_fire_after_its_schedule_ended(written: Written) -> None:
    add_fire(written, 124, 99)


def nothing_ran(written: Written) -> None:
    task = written.rows("task")[3]["id"]
    written.payloads[:] = [record for record in written.payloads if record["task"] != task]


def it_failed(written: Written) -> None:
    written.rows("task")[3] |= {"status": "failed", "reason": "lease_expired", "losses": 2}
    unseen(written, written.rows("task")[3]["id"])


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
    next(record for record in written.observer if record["kind"] == "leader")["fence_holder"] = "b"


def a_term_comes_back(written: Written) -> None:
    written.observer += [leader_seen(111.0, "b", 2), leader_seen(112.0, "a", 1)]


def the_dead_lead_again(written: Written) -> None:
    written.rows("leader_term")[1]["holder"] = "a"
    written.rows("leader_write")[1]["url"] = FIRST


def a_former_leader_writes(written: Written) -> None:
    written.database.append(leader_write(FIRST, 109.2))


def a_leader_writes_too_soon(written: Written) -> None:
    written.database.append(leader_write(SECOND, 108.9))


def a_task_does_not_end(written: Written) -> None:
    row_of(written, "task", "d1")["status"] = "pending"
    unseen(written, "d1")


def an_instance_does_not_end(written: Written) -> None:
    written.database.append({"kind": "live_instance", "id": "i", "status": "reserved"})


def a_process_is_left(written: Written) -> None:
    written.scene[-1]["left"] = {17: "sleep 100"}


def two_finish_one_attempt(written: Written) -> None:
    written.proxy.append(
        {**written.proxy[0], "reports": [{**report_of(written, "i0"), "token": "another"}]},
    )


def a_task_succeeds_twice(written: Written) -> None:
    add_attempt(written, "run", 110, "run-2", "succeeded")


def an_acknowledged_finish_is_gone(written: Written) -> None:
    written.drop(row_of(written, "instance", "i3"))
    unseen(written, "i3")


def an_acknowledged_finish_has_changed(written: Written) -> None:
    row_of(written, "instance", "i3")["status"] = "lost"
    unseen(written, "i3")


def another_token_is_stored(written: Written) -> None:
    row_of(written, "instance", "i3")["token"] = "another"
    unseen(written, "i3")


def the_right_one_is_refused(written: Written) -> None:
    report_of(written, "i3")["outcome"] = "stale"


def a_late_result_is_thrown_away(written: Written) -> None:
    written.proxy.append(
        {**written.proxy[0], "reports": [{**report_of(written, "i0"), "token": "x", "outcome": "stale"}]},
    )


def a_terminal_state_changes(written: Written) -> None:
    written.observer.append({"kind": "ended", "at": 119.0, "what": "task", "id": "run", "status": "failed"})


def a_terminal_state_has_changed_in_the_end(written: Written) -> None:
    row_of(written, "task", "d1")["status"] = "failed"


def a_terminal_row_vanishes(written: Written) -> None:
    written.observer.append({"kind": "vanished", "at": 119.0, "what": "task", "id": "run", "status": "x"})


def somebody_heard_of_is_lost(written: Written) -> None:
    row_of(written, "instance", "i3")["reason"] = "lease_expired"
    heartbeat = {"kind": "exchange", "at": 104.9, "answered": 105.0, "link": "agent-1", "server": 1}
    written.proxy.append({**heartbeat, "call": "heartbeat", "status": 200, "passed": True, "kept": ["i3"]})


def an_attempt_has_two_processes(written: Written) -> None:
    written.payloads += [
        {**record, "pid": 6, "at": record["at"] - 3} for record in records_of(written, "run-1")
    ]


def two_attempts_at_once(written: Written) -> None:
    add_attempt(written, "run", 101.2, "run-2", "lost")


def fires_overlap(written: Written) -> None:
    for record in records_of(written, "x114"):
        record["at"] += 1.8 if record["kind"] == "end" else 0


def a_slot_lives_twice(written: Written) -> None:
    for record in records_of(written, "d0-1"):
        record["at"] += 0.9 if record["kind"] == "end" else 0


def a_line_is_missing(written: Written) -> None:
    log_of(written, "i3")["text"] = ""


def a_line_is_there_twice(written: Written) -> None:
    log_of(written, "i3")["text"] *= 2


def a_chunk_leaves_a_gap(written: Written) -> None:
    log_of(written, "i3")["chunks"][0][0] = 1


def the_log_of_a_lost_attempt_has_a_gap(written: Written) -> None:
    add_attempt(written, "run", 95, "run-0", "lost")
    log_of(written, "run-0")["text"] = "run-0 7 2\n"


def a_promised_task_is_not_there(written: Written) -> None:
    written.drop(row_of(written, "task", "run"))
    unseen(written, "run")


def a_request_fails(written: Written) -> None:
    row_of(written, "task", "run").update(status="failed", reason="exit_code")
    unseen(written, "run")


def a_request_succeeds_without_running(written: Written) -> None:
    written.payloads[:] = [record for record in written.payloads if record["task"] != "run"]


def a_request_ran_twice(written: Written) -> None:
    add_task(written, "run-again", 101, "again-1", job="by-hand")


def two_requests_got_one_task(written: Written) -> None:
    written.clients.append(next(record for record in written.clients if record["op"] == "run"))


def an_event_started_nothing(written: Written) -> None:
    written.drop(row_of(written, "task", "event"))
    unseen(written, "event")


def what_an_event_started_fails(written: Written) -> None:
    row_of(written, "task", "event").update(status="failed", reason="exit_code")
    unseen(written, "event")


def an_event_started_two(written: Written) -> None:
    add_task(written, "event-again", 101, "event-2", schedule_id="of-events", event_key="k")


def an_event_is_there_twice(written: Written) -> None:
    written.database.append({"kind": "event", "id": "f", "name": "n", "key": "k"})
    an_event_started_two(written)


def a_cancelled_task_succeeds(written: Written) -> None:
    row_of(written, "task", "cancelled")["status"] = "succeeded"
    unseen(written, "cancelled")


def a_cancelled_task_begins(written: Written) -> None:
    for record in records_of(written, "cancelled-1"):
        record["at"] += 5


def a_flow_fails(written: Written) -> None:
    row_of(written, "flow_run", "flow")["status"] = "failed"


def a_node_is_left_out(written: Written) -> None:
    written.drop(row_of(written, "task", "n3"))
    unseen(written, "n3")


def a_flow_fails_for_one_loss(written: Written) -> None:
    a_flow_fails(written)
    row_of(written, "task", "n3").update(status="failed", losses=1)
    unseen(written, "n3")


def a_flow_does_not_end(written: Written) -> None:
    """Though it may fail: a node of its has been lost too often."""
    row_of(written, "flow_run", "flow")["status"] = "running"
    row_of(written, "task", "n3").update(status="failed", losses=3)
    unseen(written, "n3")


def a_fire_is_left_out_by_no_policy(written: Written) -> None:
    task = row_of(written, "task", scheduled_task(EXCLUSIVE, OFFSET + 114))
    task.update(status="cancelled", reason="overlap")
    unseen(written, task["id"])


def a_node_begins_too_soon(written: Written) -> None:
    for record in records_of(written, "n21-1"):
        record["at"] += 1.2


# (what is spoilt, the verdict that turns red, what it says)
PLANTED: list[tuple[Callable[[Written], None], str, str]] = [
    (two_finish_one_attempt, "one finish per attempt", "i0 was finished by 2 claims"),
    (a_task_succeeds_twice, "one finish per attempt", "task run succeeded 2 times"),
    (
        an_acknowledged_finish_is_gone,
        "acknowledged finishes are final",
        "i3 was acknowledged and is not there",
    ),
    (an_acknowledged_finish_has_changed, "acknowledged finishes are final", "as succeeded and is lost"),
    (another_token_is_stored, "acknowledged finishes are final", "as succeeded and is succeeded"),
    (the_right_one_is_refused, "late finishers are refused", "the finisher of i3 was refused"),
    (a_late_result_is_thrown_away, "late finishers are refused", "late result of i0 was not kept"),
    (a_terminal_state_changes, "what has ended stays so", "task run was succeeded and is failed"),
    (a_terminal_state_has_changed_in_the_end, "what has ended stays so", "is failed in the end"),
    (a_terminal_row_vanishes, "what has ended stays so", "task run had ended and is gone"),
    (somebody_heard_of_is_lost, "nothing that was heard of is lost", "i3 was lost 1.70 s after"),
    (an_attempt_has_two_processes, "one process per attempt", "run-1 had 2 processes"),
    (two_attempts_at_once, "no two attempts at once", "run: process 7 lived until 101.50"),
    (fires_overlap, "no overlap where none is allowed", ": process 7 lived until 116.30"),
    (a_slot_lives_twice, "one life per slot of a daemon", "slot 0 of j: process 7"),
    (a_line_is_missing, "log lines without gap or repeat", "has 0 lines of 1, of which line 1 is"),
    (a_line_is_there_twice, "log lines without gap or repeat", "has 2 lines of 1, of which line 2 is"),
    (a_chunk_leaves_a_gap, "log lines without gap or repeat", "a chunk at 1 of 7 behind 0"),
    (the_log_of_a_lost_attempt_has_a_gap, "log lines without gap or repeat", "which lost, has 1 lines of 1"),
    (a_promised_task_is_not_there, "each request ran once", "was promised and is not there"),
    (a_request_fails, "each request ran once", "task run ended failed (exit_code)"),
    (a_request_succeeds_without_running, "each request ran once", "task run succeeded, and no process"),
    (a_request_ran_twice, "each request ran once", "by-hand was asked for 2 times and has 3"),
    (two_requests_got_one_task, "each request ran once", "was promised to 2 requests"),
    (an_event_started_nothing, "each event started one task", "is there 1 times and started 0"),
    (what_an_event_started_fails, "each event started one task", "task event ended failed"),
    (an_event_started_two, "each event started one task", "is there 1 times and started 2"),
    (an_event_is_there_twice, "each event started one task", "acknowledged and is there 2 times"),
    (a_cancelled_task_succeeds, "cancelled is cancelled", "was cancelled and is succeeded"),
    (a_cancelled_task_begins, "cancelled is cancelled", "began after it had been cancelled"),
    (a_flow_fails, "flows ran node by node", "of a flow ended failed"),
    (a_flow_fails_for_one_loss, "flows ran node by node", "of a flow ended failed"),
    (a_node_is_left_out, "flows ran node by node", "succeeded with {'first': 1, 'each': 3}"),
    (a_node_begins_too_soon, "flows ran node by node", "last began before each had ended"),
    (a_fire_is_missing, "no fire is missing", "j/s has no task for 1700000106"),
    (a_fire_came_twice, "no fire came twice", "j/s has 2 tasks for 1700000106"),
    (a_fire_at_no_time_of_its, "no fire was invented", "1700000105.000, which is no fire"),
    (an_id_that_was_drawn, "no fire was invented", "does not follow from j/s and 1700000106"),
    (a_fire_after_its_schedule_ended, "no fire was invented", "1700000124.000, which is no fire"),
    (nothing_ran, "every fire ran", "succeeded, and no process of it did"),
    (it_failed, "every fire ran", "ended failed (lease_expired)"),
    (a_fire_is_left_out_by_no_policy, "every fire ran", "ended cancelled (overlap)"),
    (it_started_early, "nothing started early", "due 100.00, started -0.20 s"),
    (it_started_late_in_calm, "starts on time, calm", "started +1.60 s after that (bound 1 s)"),
    (it_started_late_in_trouble, "starts on time, faults", "started +5.60 s after that (bound 5 s)"),
    (two_hold_one_term, "one holder per term", "term 2 has 2 holders: b, c"),
    (the_fence_is_anothers, "one holder per term", "a lock of one and a fence of another"),
    (a_term_comes_back, "one holder per term", "term 2 was followed by 1"),
    (the_dead_lead_again, "one holder per term", "a was killed and leads again"),
    (a_former_leader_writes, "no write of a former leader", "1 wrote fires in term 2, which is"),
    (a_leader_writes_too_soon, "no write of a former leader", "2 wrote fires in term 1, which is"),
    (a_task_does_not_end, "everything has ended", "task d1 of j is pending"),
    (a_flow_does_not_end, "everything has ended", "of a flow is running"),
    (an_instance_does_not_end, "everything has ended", "instance i is reserved"),
    (a_process_is_left, "no process is left", "process 17 (sleep 100) is left"),
]

# What cannot be wrong without another promise being broken by it.
ALSO: dict[Callable[[Written], None], str] = {
    two_finish_one_attempt: "acknowledged finishes are final",
    a_fire_came_twice: "no fire was invented",
}
