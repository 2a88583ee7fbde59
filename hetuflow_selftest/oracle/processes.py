"""What must not run at once does not."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator

from hetuflow_selftest.oracle.evidence import Histories, Run
from hetuflow_selftest.oracle.fires import planned
from hetuflow_selftest.oracle.verdict import Anomaly, Verdict, judged

_PAUSE = "pause-host"


def never_at_once(histories: Histories) -> list[Verdict]:
    """Attempts of a task, all of which end before their lease does; fires of a schedule; lives of a slot."""
    attempts = {task: runs for task, runs in histories.runs_of_task.items() if len(runs) > 1}
    exclusive = {plan.schedule for plan in planned(histories) if plan.overlap != "allow"}
    by_schedule: dict[str, list[Run]] = defaultdict(list)
    by_slot: dict[str, list[Run]] = defaultdict(list)
    slots = {
        row["id"]: f"slot {row['slot']} of {row['job']}"
        for row in histories.rows("instance")
        if row["slot"] is not None
    }
    for run in histories.runs:
        schedule = histories.tasks.get(run.task, {}).get("schedule_id")
        if schedule in exclusive:
            by_schedule[schedule].append(run)
        if run.instance in slots:
            by_slot[slots[run.instance]].append(run)
    return [
        _one_process_each(histories),
        _apart(histories, "no two attempts at once", "tasks that ran more than once", attempts),
        _apart(histories, "no overlap where none is allowed", "schedules", by_schedule),
        _apart(histories, "one life per slot of a daemon", "slots", by_slot),
    ]


def _was_asleep(histories: Histories, earlier: Run, later: Run) -> bool:
    """Whether a lease ran out while a whole host stood still, and its keeper ended the work on waking.

    Nothing on a machine that does not run can prevent that; what it had still to say is refused.
    """
    agent = histories.agents.get(earlier.instance)
    return any(
        window.fault == _PAUSE
        and window.victim == agent
        and window.began <= later.started <= window.ended
        and earlier.seen <= window.ended + histories.facts["bounds"]["waking"]
        for window in histories.windows
    )


def _one_process_each(histories: Histories) -> Verdict:
    """An attempt that has begun is never begun again: what becomes of it is another attempt."""
    processes: dict[str, list[Run]] = defaultdict(list)
    for run in histories.runs:
        processes[run.instance].append(run)
    anomalies = [
        Anomaly(f"instance {instance} had {len(runs)} processes", runs[1].started)
        for instance, runs in processes.items()
        if len(runs) > 1
    ]
    return judged("one process per attempt", len(processes), "attempts", anomalies)


def _apart(histories: Histories, name: str, unit: str, groups: dict[str, list[Run]]) -> Verdict:
    found = [anomaly for key, runs in groups.items() for anomaly in _overlaps(histories, key, runs)]
    if name == "no two attempts at once" and not groups:
        # Faults that lose nothing are no reason to doubt.
        return judged(name, 1, "run without a second attempt", found)
    return judged(name, len(groups), unit, found)


def _overlaps(histories: Histories, key: str, runs: Iterable[Run]) -> Iterator[Anomaly]:
    tolerance = histories.facts["bounds"]["tolerance"]
    alive: list[Run] = []
    for later in sorted(runs, key=lambda run: run.started):
        # All of them, not the last alone: that one may be excused, or over, while another lives on.
        alive = [run for run in alive if run.seen > later.started + tolerance]
        for earlier in alive:
            if not _was_asleep(histories, earlier, later):
                said = (
                    f"{key}: process {earlier.pid} lived until {earlier.seen:.2f} at least, "
                    f"process {later.pid} began at {later.started:.2f}"
                )
                yield Anomaly(said, later.started)
        alive.append(later)
