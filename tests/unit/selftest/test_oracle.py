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
from tests.support.selftest.bad_histories import ALSO, PLANTED, somebody_heard_of_is_lost
from tests.support.selftest.hidden_faults import HIDDEN
from tests.support.selftest.histories import (
    OFFSET,
    SCHEDULE,
    Written,
    add_attempt,
    add_fire,
    good,
    records_of,
    row_of,
)


def test_a_good_history_passes() -> None:
    verdicts = good().judged()
    assert {name: verdict.outcome for name, verdict in verdicts.items()} == dict.fromkeys(
        verdicts, Outcome.PASS
    )
    assert overall(list(verdicts.values())) is Outcome.PASS
    assert verdicts["no fire is missing"].judged == 12


def test_there_is_a_bad_history_for_every_verdict() -> None:
    verdicts = {name for name in good().judged() if not name.startswith("fault: ")}
    assert {red for _, red, _ in PLANTED} == verdicts


@pytest.mark.parametrize(("plant", "red", "said"), [*PLANTED, *HIDDEN])
def test_what_is_planted_is_found_and_nothing_else(
    plant: Callable[[Written], None], red: str, said: str
) -> None:
    written = good()
    plant(written)
    verdicts = written.judged()
    reds = {name for name, verdict in verdicts.items() if verdict.outcome is not Outcome.PASS}
    assert reds == ({red, ALSO[plant]} if plant in ALSO else {red})
    assert verdicts[red].outcome is Outcome.FAIL
    [anomaly] = verdicts[red].anomalies
    assert said in anomaly.what
    assert overall(list(verdicts.values())) is Outcome.FAIL


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


@pytest.mark.parametrize("told", [{"fault": "stop-agent"}, {"victim": "agent-3"}])
def test_no_other_fault_and_no_other_host_excuses_two_attempts_at_once(told: dict[str, str]) -> None:
    written = good()
    two_attempts_around_a_pause(written, began=106.0, seen=107.5)
    for record in written.nemesis[-2:]:
        record.update(told)
    assert written.judged()["no two attempts at once"].outcome is Outcome.FAIL


def test_one_that_is_excused_hides_no_other() -> None:
    """A third attempt begins when the host has woken up, where the first is still there."""
    written = good()
    two_attempts_around_a_pause(written, began=106.0, seen=107.5)
    add_attempt(written, "run", 107.2, "run-3", "succeeded", agent="agent-2")
    [anomaly] = written.judged()["no two attempts at once"].anomalies
    assert "lived until 107.50 at least, process 7 began at 107.30" in anomaly.what


def test_without_a_second_attempt_none_ran_beside_another() -> None:
    """Faults that lose nothing are no reason to doubt; that nothing was there which could overlap is one."""
    written = good()
    written.payloads[:] = [
        record for record in written.payloads if record["instance"] not in {"twice-0", "twice-1"}
    ]
    assert written.judged()["no two attempts at once"].outcome is Outcome.PASS
    for row in written.rows("instance"):
        row["slot"] = None
    written.clients[:] = [record for record in written.clients if "overlap" not in record]
    verdicts = written.judged()
    assert verdicts["one life per slot of a daemon"].outcome is Outcome.UNKNOWN
    assert verdicts["no overlap where none is allowed"].outcome is Outcome.UNKNOWN


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


def test_what_was_taken_ahead_may_come_after_its_schedule_has_ended() -> None:
    written = good()
    add_fire(written, 122, 98)
    assert written.judged()["no fire was invented"].outcome is Outcome.PASS


def test_a_fault_that_was_never_undone_lasts_to_the_end() -> None:
    written = good()
    written.nemesis.pop()
    for record in records_of(written, "i9"):
        record["at"] += 4.5
    verdicts = written.judged()
    assert verdicts["starts on time, calm"].outcome is Outcome.PASS
    assert verdicts["starts on time, faults"].outcome is Outcome.PASS


def test_who_was_silent_for_a_lease_is_lost() -> None:
    written = good()
    somebody_heard_of_is_lost(written)
    row_of(written, "instance", "i3")["finished_at"] = OFFSET + 110.1
    assert written.judged()["nothing that was heard of is lost"].outcome is Outcome.PASS


def test_a_lease_is_as_old_as_the_question_for_it() -> None:
    """The answer may have been held up for most of it, behind the database's back."""
    written = good()
    somebody_heard_of_is_lost(written)
    written.proxy[-1]["at"] = 103.0
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


@pytest.mark.parametrize("changed", range(6))
def test_every_field_of_cron_counts(changed: int) -> None:
    """A Tuesday, at one second of it."""
    second = int(datetime(2026, 2, 3, 2, 30, 5, tzinfo=UTC).timestamp())
    fields = [5, 30, 2, 3, 2, 2]
    assert fires({"cron": " ".join(map(str, fields))}, second - 1, second + 1) == [second]
    fields[changed] += 1
    assert fires({"cron": " ".join(map(str, fields))}, second - 1, second + 1) == []


def test_the_last_value_of_every_field_of_cron_is_there_and_no_later_one() -> None:
    last = datetime(2027, 12, 31, 23, 59, 59, tzinfo=UTC)
    sunday = datetime(2026, 2, 1, tzinfo=UTC)
    for at in (last, sunday):
        second = int(at.timestamp())
        assert fires({"cron": "* * * * * *"}, second - 1, second + 2) == [second, second + 1]
    for name in ("0", "7"):
        second = int(sunday.timestamp())
        assert fires({"cron": f"0 0 0 * * {name}"}, second - 1, second + 1) == [second]


def test_minutes_and_hours_are_intervals() -> None:
    assert fires({"every": "1m"}, 0.0, 181.0) == [60, 120, 180]
    assert fires({"every": "2h"}, 0.0, 14_401.0) == [7_200, 14_400]
