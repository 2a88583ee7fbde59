"""The judge: a good history passes, and each planted fault turns the verdict about it red."""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime
from uuid import UUID

import pytest

from hetuflow_core.ids import task_of_schedule
from hetuflow_selftest.oracle.calendar import fires
from hetuflow_selftest.oracle.ids import scheduled_task
from hetuflow_selftest.oracle.verdict import Outcome, overall
from tests.support.histories import (
    FIRST,
    OFFSET,
    SCHEDULE,
    SECOND,
    Written,
    add_attempt,
    add_fire,
    add_task,
    good,
    leader_seen,
    leader_write,
    log_of,
    records_of,
    report_of,
    row_of,
)


def test_a_good_history_passes() -> None:
    verdicts = good().judged()
    assert {name: verdict.outcome for name, verdict in verdicts.items()} == dict.fromkeys(
        verdicts, Outcome.PASS
    )
    assert overall(list(verdicts.values())) is Outcome.PASS
    assert verdicts["no fire is missing"].judged == 12


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
    next(record for record in written.observer if record["kind"] == "leader")["fence_holder"] = "b"


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


def two_finish_one_attempt(written: Written) -> None:
    written.proxy.append(
        {**written.proxy[0], "reports": [{**report_of(written, "i0"), "token": "another"}]},
    )


def a_task_succeeds_twice(written: Written) -> None:
    add_attempt(written, "run", 110, "run-2", "succeeded")


def an_acknowledged_finish_is_gone(written: Written) -> None:
    written.drop(row_of(written, "instance", "i3"))


def an_acknowledged_finish_has_changed(written: Written) -> None:
    row_of(written, "instance", "i3")["status"] = "lost"


def another_token_is_stored(written: Written) -> None:
    row_of(written, "instance", "i3")["token"] = "another"


def the_right_one_is_refused(written: Written) -> None:
    report_of(written, "i3")["outcome"] = "stale"


def a_late_result_is_thrown_away(written: Written) -> None:
    written.proxy.append(
        {**written.proxy[0], "reports": [{**report_of(written, "i0"), "token": "x", "outcome": "stale"}]},
    )


def a_terminal_state_changes(written: Written) -> None:
    written.observer.append({"kind": "ended", "at": 119.0, "what": "task", "id": "run", "status": "failed"})


def a_terminal_state_has_changed_in_the_end(written: Written) -> None:
    row_of(written, "task", "run")["status"] = "failed"


def a_terminal_row_vanishes(written: Written) -> None:
    written.observer.append({"kind": "vanished", "at": 119.0, "what": "task", "id": "run", "status": "x"})


def somebody_heard_of_is_lost(written: Written) -> None:
    row_of(written, "instance", "i3")["reason"] = "lease_expired"
    heartbeat = {"kind": "exchange", "at": 104.9, "answered": 105.0, "link": "agent-1", "server": 1}
    written.proxy.append({**heartbeat, "call": "heartbeat", "status": 200, "passed": True, "kept": ["i3"]})


def an_attempt_has_two_processes(written: Written) -> None:
    written.payloads += [{**record, "pid": 8, "at": record["at"] + 3} for record in records_of(written, "i3")]


def two_attempts_at_once(written: Written) -> None:
    add_attempt(written, "run", 101.2, "run-2", "lost")


def two_attempts_around_a_pause(written: Written, *, began: float, seen: float) -> None:
    """One on a host that stands still from 101.2 to 107, one that began somewhere else."""
    record = {"id": 2, "fault": "pause-host", "victim": "agent-1"}
    written.nemesis += [{**record, "kind": "begin", "at": 101.2}, {**record, "kind": "end", "at": 107.0}]
    records_of(written, "run-1")[-1].update(at=seen, kind="told")
    add_attempt(written, "run", began, "run-2", "succeeded", agent="agent-2")


@pytest.mark.parametrize(
    ("began", "seen", "expected"),
    [
        (106.0, 107.5, Outcome.PASS),
        # The keeper let it go on after it had woken up.
        (106.0, 108.5, Outcome.FAIL),
        # It was given away before the pause, or when it was over.
        (101.0, 107.5, Outcome.FAIL),
        (107.2, 107.5, Outcome.FAIL),
    ],
)
def test_a_host_that_stood_still_ends_what_was_given_away_meanwhile(
    began: float, seen: float, expected: Outcome
) -> None:
    written = good()
    two_attempts_around_a_pause(written, began=began, seen=seen)
    assert written.judged()["no two attempts at once"].outcome is expected


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
    row_of(written, "instance", "i3")["status"] = "lost"
    log_of(written, "i3")["text"] = "i3 7 2\n"


def a_promised_task_is_not_there(written: Written) -> None:
    written.drop(row_of(written, "task", "run"))


def a_request_ran_twice(written: Written) -> None:
    add_task(written, "run-again", 101, "again-1", job="by-hand")


def two_requests_got_one_task(written: Written) -> None:
    written.clients.append(next(record for record in written.clients if record["op"] == "run"))


def an_event_started_nothing(written: Written) -> None:
    written.drop(row_of(written, "task", "event"))


def an_event_started_two(written: Written) -> None:
    add_task(written, "event-again", 101, "event-2", schedule_id="of-events", event_key="k")


def an_event_is_there_twice(written: Written) -> None:
    written.database.append({"kind": "event", "id": "f", "name": "n", "key": "k"})


def a_cancelled_task_succeeds(written: Written) -> None:
    row_of(written, "task", "cancelled")["status"] = "succeeded"


def a_cancelled_task_begins(written: Written) -> None:
    for record in records_of(written, "cancelled-1"):
        record["at"] += 5


def a_flow_fails(written: Written) -> None:
    row_of(written, "flow_run", "flow")["status"] = "failed"


def a_node_is_left_out(written: Written) -> None:
    written.drop(row_of(written, "task", "n3"))


def a_node_begins_too_soon(written: Written) -> None:
    for record in records_of(written, "n21-1"):
        record["at"] += 1.2


PLANTED: list[tuple[Callable[[Written], None], str]] = [
    (two_finish_one_attempt, "one finish per attempt"),
    (a_task_succeeds_twice, "one finish per attempt"),
    (an_acknowledged_finish_is_gone, "acknowledged finishes are final"),
    (an_acknowledged_finish_has_changed, "acknowledged finishes are final"),
    (another_token_is_stored, "acknowledged finishes are final"),
    (the_right_one_is_refused, "late finishers are refused"),
    (a_late_result_is_thrown_away, "late finishers are refused"),
    (a_terminal_state_changes, "what has ended stays so"),
    (a_terminal_state_has_changed_in_the_end, "what has ended stays so"),
    (a_terminal_row_vanishes, "what has ended stays so"),
    (somebody_heard_of_is_lost, "nothing that was heard of is lost"),
    (an_attempt_has_two_processes, "one process per attempt"),
    (two_attempts_at_once, "no two attempts at once"),
    (fires_overlap, "no overlap where none is allowed"),
    (a_slot_lives_twice, "one life per slot of a daemon"),
    (a_line_is_missing, "log lines without gap or repeat"),
    (a_line_is_there_twice, "log lines without gap or repeat"),
    (a_chunk_leaves_a_gap, "log lines without gap or repeat"),
    (the_log_of_a_lost_attempt_has_a_gap, "log lines without gap or repeat"),
    (a_promised_task_is_not_there, "each request ran once"),
    (a_request_ran_twice, "each request ran once"),
    (two_requests_got_one_task, "each request ran once"),
    (an_event_started_nothing, "each event started one task"),
    (an_event_started_two, "each event started one task"),
    (an_event_is_there_twice, "each event started one task"),
    (a_cancelled_task_succeeds, "cancelled is cancelled"),
    (a_cancelled_task_begins, "cancelled is cancelled"),
    (a_flow_fails, "flows ran node by node"),
    (a_node_is_left_out, "flows ran node by node"),
    (a_node_begins_too_soon, "flows ran node by node"),
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
]


def test_there_is_a_bad_history_for_every_verdict() -> None:
    verdicts = {name for name in good().judged() if not name.startswith("fault: ")}
    assert {red for _, red in PLANTED} == verdicts


@pytest.mark.parametrize(("plant", "red"), PLANTED)
def test_what_is_planted_is_found(plant: Callable[[Written], None], red: str) -> None:
    written = good()
    plant(written)
    verdicts = written.judged()
    assert verdicts[red].outcome is Outcome.FAIL, verdicts[red].summary
    assert verdicts[red].anomalies
    assert overall(list(verdicts.values())) is Outcome.FAIL


def test_nothing_to_look_at_is_no_pass() -> None:
    written = good()
    written.clients.clear()
    nothing = written.judged()["no fire is missing"]
    assert nothing.outcome is Outcome.UNKNOWN
    assert overall([good().judged()["no fire is missing"], nothing]) is Outcome.UNKNOWN
    assert overall([]) is Outcome.UNKNOWN


def test_a_schedule_that_ended_before_anybody_came_to_it_has_missed_nothing() -> None:
    written = good()
    asked = {"kind": "operation", "schedule": "late", "job": "j", "name": "l", "spec": {"every": "1s"}}
    written.clients += [
        {**asked, "op": "schedule", "at": 108.0, "answered": 108.2},
        {**asked, "op": "unschedule", "at": 109.7, "answered": 109.9},
    ]
    assert written.judged()["no fire is missing"].outcome is Outcome.PASS
    written.clients[-1]["at"] = 111.0
    assert written.judged()["no fire is missing"].outcome is Outcome.FAIL


def test_who_was_silent_for_a_lease_is_lost() -> None:
    written = good()
    somebody_heard_of_is_lost(written)
    row_of(written, "instance", "i3")["finished_at"] = OFFSET + 110.1
    assert written.judged()["nothing that was heard of is lost"].outcome is Outcome.PASS


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
