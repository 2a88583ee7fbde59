"""In the end everything has ended, and nothing is left running."""

from __future__ import annotations

from hetuflow_selftest.oracle.evidence import Histories
from hetuflow_selftest.oracle.verdict import Anomaly, Verdict, judged

_TERMINAL = frozenset({"succeeded", "failed", "cancelled", "skipped"})


def everything_ended(histories: Histories) -> list[Verdict]:
    tasks = histories.tasks.values()
    unended = [
        Anomaly(f"task {task['id']} of {task['job']} is {task['status']}", lane="fires")
        for task in tasks
        if task["status"] not in _TERMINAL
    ]
    unended += [
        Anomaly(f"instance {row['id']} is {row['status']}", lane="fires")
        for row in histories.rows("live_instance")
    ]
    unended += [
        Anomaly(f"run {row['id']} of a flow is {row['status']}", lane="fires")
        for row in histories.rows("flow_run")
        if row["status"] not in _TERMINAL
    ]
    scans = [record for record in histories.scene if record["kind"] == "processes"]
    left = [
        Anomaly(f"process {pid} ({what}) is left", scan["at"])
        for scan in scans
        for pid, what in scan["left"].items()
    ]
    return [
        judged("everything has ended", len(tasks), "tasks", unended),
        judged("no process is left", len(scans), "looks at the processes of this machine", left),
    ]
