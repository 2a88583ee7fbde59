"""What clients were promised: each run once, each event once, cancels that hold, flows in order."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator

from hetuflow_selftest.oracle.evidence import Histories, Record
from hetuflow_selftest.oracle.fires import unrun, worn_out
from hetuflow_selftest.oracle.verdict import Anomaly, Verdict, judged


def promises(histories: Histories) -> list[Verdict]:
    runs = histories.operations("run")
    events = histories.operations("emit")
    cancels = [record for record in histories.operations("cancel") if record["status"] == 200]  # noqa: PLR2004  OK
    flows = histories.rows("flow_run")
    return [
        judged("each request ran once", len(runs), "requests", _runs(histories, runs)),
        judged("each event started one task", len(events), "events", _events(histories, events)),
        judged("cancelled is cancelled", len(cancels), "cancels", _cancels(histories, cancels)),
        judged("flows ran node by node", len(flows), "runs of flows", _flows(histories, flows)),
    ]


def _runs(histories: Histories, runs: list[Record]) -> Iterator[Anomaly]:
    """An answer names a task that is there and succeeds; no answer may mean one task, and never two."""
    # What somebody wanted to cancel may have ended so; runs of flows are judged by their nodes.
    excused = {record["task"] for record in histories.operations("cancel")}
    excused |= {row["id"] for row in histories.rows("flow_run")}
    promised = Counter(record["told_id"] for record in runs if record.get("told_id"))
    for task, count in promised.items():
        if task not in histories.tasks:
            yield Anomaly(f"task {task} was promised and is not there")
        elif task not in excused:
            yield from map(Anomaly, unrun(histories, histories.tasks[task]))
        if count > 1:
            yield Anomaly(f"task {task} was promised to {count} requests")
    asked = Counter(record["job"] for record in runs)
    by_hand = Counter(
        row["job"] for row in histories.tasks.values() if not row["schedule_id"] and not row["flow_run_id"]
    )
    for job, count in by_hand.items():
        if count > asked[job]:
            yield Anomaly(f"{job} was asked for {asked[job]} times and has {count} tasks")


def _events(histories: Histories, events: list[Record]) -> Iterator[Anomaly]:
    keys = Counter(row["key"] for row in histories.rows("event"))
    wanted = [row for row in histories.tasks.values() if row.get("event_key")]
    started = Counter(row["event_key"] for row in wanted)
    for row in wanted:
        yield from map(Anomaly, unrun(histories, row))
    for record in events:
        key = record["key"]
        if record["answered"] is not None and keys[key] != 1:
            yield Anomaly(f"event {key} was acknowledged and is there {keys[key]} times", record["at"])
        if started[key] != keys[key]:
            yield Anomaly(
                f"event {key} is there {keys[key]} times and started {started[key]} tasks", record["at"]
            )


def _cancels(histories: Histories, cancels: list[Record]) -> Iterator[Anomaly]:
    """Work that would last for minutes was cancelled, so it ended so; what never began never begins."""
    for record in cancels:
        task = histories.tasks.get(record["task"])
        if task is None or task["status"] != "cancelled":
            yield Anomaly(
                f"task {record['task']} was cancelled and is {task and task['status']}", record["at"]
            )
        for run in histories.runs_of_task.get(record["task"], []):
            if record.get("told_status") == "cancelled" and run.started > record["answered"] + 1.0:
                yield Anomaly(f"task {record['task']} began after it had been cancelled", run.started)


def _flows(histories: Histories, flows: list[Record]) -> Iterator[Anomaly]:
    nodes: dict[str, list[Record]] = defaultdict(list)
    for row in histories.tasks.values():
        if row["flow_run_id"]:
            nodes[row["flow_run_id"]].append(row)
    for flow in flows:
        ran = Counter(row["flow_node"] for row in nodes[flow["id"]] if row["status"] == "succeeded")
        if flow["status"] != "succeeded" and not any(map(worn_out, nodes[flow["id"]])):
            yield Anomaly(f"run {flow['id']} of a flow ended {flow['status']}")
        elif flow["status"] == "succeeded" and ran != {"first": 1, "each": 3, "last": 1}:
            yield Anomaly(f"run {flow['id']} of a flow succeeded with {dict(ran)}")
        yield from _order(histories, flow, nodes[flow["id"]])


def _order(histories: Histories, flow: Record, tasks: list[Record]) -> Iterator[Anomaly]:
    """No node begins before those it needs have ended for good."""
    began: dict[str, list[float]] = defaultdict(list)
    ended: dict[str, list[float]] = defaultdict(list)
    for task in tasks:
        runs = histories.runs_of_task.get(task["id"], [])
        began[task["flow_node"]] += [run.started for run in runs]
        ended[task["flow_node"]] += [max((run.ended for run in runs if run.ended is not None), default=0.0)]
    for before, after in (("first", "each"), ("each", "last")):
        if began[after] and max(ended[before], default=0.0) > min(began[after]) + 0.05:
            yield Anomaly(f"run {flow['id']}: {after} began before {before} had ended", min(began[after]))
