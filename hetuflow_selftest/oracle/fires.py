"""No fire is missing, none came twice, and each one ran."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from hetuflow_selftest.oracle.calendar import fires
from hetuflow_selftest.oracle.evidence import Histories, Record
from hetuflow_selftest.oracle.ids import scheduled_task
from hetuflow_selftest.oracle.verdict import Anomaly, Verdict, judged

# So many losses in a row end a task, as documented.
_LOSSES_THAT_END = 3
# How fires may end, by the policy of their schedule, that come while another one is there.
_LEAVES_OUT: Final = {
    "skip": {"skipped"},
    "queue_one": {"skipped"},
    "cancel_running": {"skipped", "cancelled"},
}

# The database reads its clock a moment before or after a client reads its own.
_MOMENT = 1.0
# What an agent has taken ahead of its time is not taken back when its schedule ends.
_AHEAD = 2.0 + _MOMENT


@dataclass(frozen=True, slots=True)
class Planned:
    """A schedule with the fires it had to have, and those it might have had; seconds since 1970."""

    schedule: str
    name: str
    overlap: str
    due: frozenset[int]
    possible: frozenset[int]


def planned(histories: Histories) -> list[Planned]:
    """What clients asked for, from its answer until they asked for its end; in between either is right."""
    made = Counter(task["schedule_id"] for task in histories.tasks.values())
    brief = histories.facts["bounds"]["generation"]
    ends = {record["schedule"]: record for record in histories.operations("unschedule")}
    over = histories.facts.get("ended_at", 0.0)
    offset = histories.wall_minus_boottime
    found = []
    for record in histories.operations("schedule"):
        end = ends.get(record["schedule"])
        last_certain = (end["at"] if end else over) + offset
        last_possible = (end["answered"] if end and end["answered"] is not None else over) + offset
        first_possible = record["at"] + offset
        first_certain = record["answered"] + offset if record["answered"] is not None else last_possible
        if not made[record["schedule"]] and last_certain - first_certain < brief:
            # It was ended before anybody had come to it: from then on it has missed nothing, as documented.
            first_certain = last_certain
        found.append(
            Planned(
                record["schedule"],
                f"{record['job']}/{record['name']}",
                record.get("overlap", "allow"),
                frozenset(fires(record["spec"], first_certain, last_certain)),
                frozenset(fires(record["spec"], first_possible - _MOMENT, last_possible + _AHEAD)),
            )
        )
    return found


def each_fire_once(histories: Histories) -> list[Verdict]:
    plans = planned(histories)
    made: dict[str, list[Record]] = {plan.schedule: [] for plan in plans}
    for task in histories.tasks.values():
        if task["schedule_id"] in made and task["backfill_id"] is None:
            made[task["schedule_id"]].append(task)
    expected = sum(len(plan.due) for plan in plans)
    missing, twice, strange = [], [], []
    for plan in plans:
        counted = Counter(round(task["fire_at"], 3) for task in made[plan.schedule])
        missing += [
            _at(histories, fire, f"{plan.name} has no task for {fire}") for fire in plan.due - counted.keys()
        ]
        twice += [
            _at(histories, fire, f"{plan.name} has {count} tasks for {fire:.0f}")
            for fire, count in counted.items()
            if count > 1
        ]
        strange += list(_strangers(histories, plan, made[plan.schedule]))
    return [
        judged("no fire is missing", expected, "fires", missing),
        judged("no fire came twice", sum(map(len, made.values())), "tasks", twice),
        judged("no fire was invented", sum(map(len, made.values())), "tasks", strange),
    ]


def _strangers(histories: Histories, plan: Planned, tasks: list[Record]) -> Iterator[Anomaly]:
    for task in tasks:
        fire = task["fire_at"]
        if fire not in plan.possible:
            yield _at(histories, fire, f"{plan.name} has a task for {fire:.3f}, which is no fire of it")
        elif task["id"] != scheduled_task(plan.schedule, fire):
            yield _at(histories, fire, f"the id {task['id']} does not follow from {plan.name} and {fire:.0f}")


def each_fire_ran(histories: Histories) -> Verdict:
    """It succeeds: the payloads always do, and they tell. Where none may be beside it, it may be left out."""
    plans = {plan.schedule: plan for plan in planned(histories)}
    tasks = [task for task in histories.tasks.values() if task["schedule_id"] in plans]
    anomalies = [
        _at(histories, task["fire_at"], wrong)
        for task in tasks
        if not _left_out(task, plans[task["schedule_id"]].overlap)
        for wrong in unrun(histories, task)
    ]
    return judged("every fire ran", len(tasks), "fires", anomalies)


def _left_out(task: Record, overlap: str) -> bool:
    return task["reason"] == "overlap" and task["status"] in _LEAVES_OUT.get(overlap, ())


def unrun(histories: Histories, task: Record) -> Iterator[str]:
    """Say what is wrong with the end of a task that had to succeed."""
    if task["status"] == "succeeded":
        if not any(run.ended is not None for run in histories.runs_of_task.get(task["id"], [])):
            yield f"task {task['id']} succeeded, and no process of it did"
    elif not worn_out(task):
        yield f"task {task['id']} ended {task['status']} ({task['reason']}), though its work never fails"


def worn_out(task: Record) -> bool:
    return bool(task["status"] == "failed" and task["losses"] >= _LOSSES_THAT_END)


def _at(histories: Histories, fire: float, what: str) -> Anomaly:
    return Anomaly(what, at=fire - histories.wall_minus_boottime, lane="fires")


def due_times(histories: Histories) -> dict[str, tuple[Any, float]]:
    """Return {task: (its plan, when it was due by boottime)} of all fires that run beside each other."""
    allowed = {plan.schedule: plan for plan in planned(histories) if plan.overlap == "allow"}
    return {
        # Its `due_at` becomes that of the next attempt when one is lost; there is no jitter here.
        task["id"]: (allowed[task["schedule_id"]], task["fire_at"] - histories.wall_minus_boottime)
        for task in histories.tasks.values()
        if task["schedule_id"] in allowed
    }
