"""A good history of a self-test, to be spoilt."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

from hetuflow_selftest.oracle.evidence import Histories
from hetuflow_selftest.oracle.ids import scheduled_task
from hetuflow_selftest.oracle.judge import judge
from hetuflow_selftest.oracle.verdict import Verdict

# Boottime 0 is an even second, so that both clocks show multiples of the interval together.
OFFSET = 1_700_000_000.0
SCHEDULE = "01890f3e-7b3c-7cc0-98c4-dc0c0c07398f"
EXCLUSIVE = "01890f3e-7b3c-7cc0-98c4-dc0c0c073991"
FIRST, SECOND = "http://127.0.0.1:1", "http://127.0.0.1:2"
BOUNDS = {
    "calm_latency": 1.0,
    "fault_latency": 5.0,
    "recovery": 2.0,
    "generation": 2.0,
    "tolerance": 0.05,
    "waking": 1.0,
}


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
        {"kind": "server", "id": "a", "url": FIRST, "started_at": OFFSET + 89},
        {"kind": "server", "id": "b", "url": SECOND, "started_at": OFFSET + 89},
        {"kind": "leader_term", "epoch": 1, "holder": "a", "committed_at": OFFSET + 90},
        {"kind": "leader_term", "epoch": 2, "holder": "b", "committed_at": OFFSET + 109},
        leader_write(FIRST, 107.9),
        leader_write(SECOND, 109.1),
    ]
    fault = {"id": 1, "fault": "kill-leader", "victim": "server-1", "holder": "a", "epoch": 1, "died": True}
    written.nemesis += [{**fault, "kind": "begin", "at": 108.0}, {**fault, "kind": "end", "at": 110.0}]
    written.observer.append(leader_seen(100.0, "a", 1))
    add_requests(written)
    add_loss(written)
    written.scene += [
        {"kind": "begin", "at": 90.0, "bounds": BOUNDS, "wall_minus_boottime": OFFSET, "lease": 5.0},
        {"kind": "over", "at": 120.5, "ended_at": 120.5},
        {"kind": "processes", "at": 121.0, "left": {}},
    ]
    return written


def add_fire(written: Written, second: int, number: int) -> None:
    task = scheduled_task(SCHEDULE, OFFSET + second)
    add_task(written, task, second, f"i{number}", schedule_id=SCHEDULE)


def add_task(written: Written, task: str, at: float, instance: str, **facts: Any) -> None:
    """One that ran once, for half a second, and said one line."""
    status, token = facts.get("status", "succeeded"), f"token-{instance}"
    task_row = {
        "kind": "task",
        "id": task,
        "job": "j",
        "schedule_id": None,
        "backfill_id": None,
        "flow_run_id": None,
        "status": status,
        "reason": None,
        "losses": 0,
        "fire_at": OFFSET + at,
        "due_at": OFFSET + at,
        "created_at": OFFSET + at - 5,
    }
    written.database.append(task_row | facts)
    add_attempt(written, task, at, instance, status)
    written.proxy.append(
        {
            "kind": "exchange",
            "at": at + 0.6,
            "answered": at + 0.7,
            "link": "agent-1",
            "server": 1,
            "call": "reports",
            "status": 200,
            "passed": True,
            "reports": [
                {"type": "finish", "instance": instance, "token": token, "status": status, "outcome": "ok"}
            ],
        }
    )
    written.observer += [
        {"kind": "ended", "at": at + 1, "what": "task", "id": task, "status": status},
        {"kind": "ended", "at": at + 1, "what": "instance", "id": instance, "status": f"{status} {token}"},
    ]


def add_attempt(written: Written, task: str, at: float, instance: str, status: str, **facts: Any) -> None:
    said = {"task": task, "instance": instance, "pid": 7}
    written.payloads += [
        {**said, "at": at + 0.1, "kind": "start", "line": 0},
        {**said, "at": at + 0.3, "kind": "line", "line": 1},
        {**said, "at": at + 0.5, "kind": "end", "line": 1},
    ]
    row = {"id": instance, "task_id": task, "job": "j", "status": status, "token": f"token-{instance}"}
    row |= {"reason": None, "finished_at": OFFSET + at + 0.6}
    written.database += [
        {"kind": "instance", **row, "claim_no": 1, "agent": "agent-1", "slot": None, **facts},
        {
            "kind": "log",
            "instance": instance,
            "claim_no": 1,
            "stream": "stdout",
            "chunks": [[0, len(instance) + 5, len(instance) + 5]],
            "text": f"{instance} 7 1\n",
        },
    ]


def add_requests(written: Written) -> None:
    """A run, an event, a cancel, a flow, two lives of a daemon, and fires that may not overlap."""
    asked = {"kind": "operation", "at": 101.0, "answered": 101.1, "status": 200}
    written.clients += [
        {**asked, "op": "run", "job": "by-hand", "told_id": "run"},
        {**asked, "op": "emit", "key": "k"},
        {**asked, "op": "cancel", "task": "cancelled", "told_status": "cancelled"},
        {
            **asked,
            "op": "schedule",
            "schedule": EXCLUSIVE,
            "job": "x",
            "name": "s",
            "spec": {"every": "2s"},
            "overlap": "skip",
            "at": 113.0,
            "answered": 113.1,
        },
        {**asked, "op": "unschedule", "schedule": EXCLUSIVE, "at": 117.0, "answered": 117.1},
    ]
    add_task(written, "run", 101, "run-1", job="by-hand")
    add_task(written, "event", 101, "event-1", schedule_id="of-events", event_key="k")
    add_task(written, "cancelled", 100, "cancelled-1", schedule_id="z", status="cancelled")
    for second in (114, 116):
        task = scheduled_task(EXCLUSIVE, OFFSET + second)
        add_task(written, task, second, f"x{second}", schedule_id=EXCLUSIVE)
    node = {"flow_run_id": "flow"}
    add_task(written, "n1", 102, "n1-1", flow_node="first", **node)
    for number in range(3):
        add_task(written, f"n2{number}", 103, f"n2{number}-1", flow_node="each", **node)
    add_task(written, "n3", 104, "n3-1", flow_node="last", **node)
    for number in range(2):
        add_task(written, f"d{number}", 105 + number, f"d{number}-1", schedule_id="of-daemon")
        written.rows("instance")[-1]["slot"] = 0
    written.database += [
        {"kind": "event", "id": "e", "name": "n", "key": "k"},
        {"kind": "flow_run", "id": "flow", "status": "succeeded"},
    ]


def add_loss(written: Written) -> None:
    """A request whose first attempt died with its keeper, as its agent said just after it had asked for it;
    the second was cut off at 102, given up at 107.5, and is refused when it is back.
    """
    asked = {"kind": "operation", "op": "run", "job": "by-hand", "told_id": "twice", "status": 200}
    written.clients.append({**asked, "at": 100.9, "answered": 101.0})
    add_task(written, "twice", 108, "twice-2", job="by-hand")
    add_attempt(written, "twice", 101, "twice-1", "lost")
    row_of(written, "instance", "twice-1").update(reason="lease_expired", finished_at=OFFSET + 107.5)
    add_attempt(written, "twice", 99, "twice-0", "lost", reason="keeper_lost")
    seen = {"kind": "exchange", "link": "agent-1", "server": 1, "status": 200, "passed": True}
    report = {"instance": "twice-1", "token": "token-twice-1", "status": None}
    late = {**report, "type": "finish", "status": "succeeded"}
    written.proxy += [
        {"kind": "link", "at": 90.0, "link": "agent-1", "fault": None},
        {**seen, "at": 101.1, "answered": 101.2, "call": "reports"}
        | {"reports": [{**report, "type": "start", "outcome": "ok"}]},
        {**seen, "at": 102.0, "answered": 102.1, "call": "heartbeat", "kept": ["twice-1"]},
        # Asked again once it was over: nothing of this is renewed, whoever has it.
        {**seen, "at": 107.6, "answered": 107.7, "call": "heartbeat", "kept": ["twice-1"]},
        {**seen, "at": 99.5, "answered": 99.55, "call": "heartbeat", "kept": ["twice-0"]},
        # Nobody could answer at first.
        {**seen, "at": 108.5, "answered": 108.6, "call": "reports", "status": 503}
        | {"reports": [{**late, "instance": "twice-2", "token": "token-twice-2", "outcome": None}]},
        {**seen, "at": 109.2, "answered": 109.3, "call": "reports"}
        | {"reports": [{**late, "outcome": "stale"}]},
    ]
    written.database.append({"kind": "late_report", "instance_id": "twice-1", "token": "token-twice-1"})


def leader_write(url: str, at: float) -> dict[str, Any]:
    return {"kind": "leader_write", "server": "s", "url": url, "what": "fires", "committed_at": OFFSET + at}


def leader_seen(at: float, holder: str, epoch: int) -> dict[str, Any]:
    fence = {"fence_holder": holder, "fence_epoch": epoch}
    return {"kind": "leader", "at": at, "holder": holder, "epoch": epoch, **fence}


def row_of(written: Written, table: str, id_: str) -> dict[str, Any]:
    return next(row for row in written.rows(table) if row["id"] == id_)


def records_of(written: Written, instance: str) -> list[dict[str, Any]]:
    return [record for record in written.payloads if record["instance"] == instance]


def report_of(written: Written, instance: str) -> dict[str, Any]:
    reports = (one for record in written.proxy for one in record.get("reports", ()))
    return next(one for one in reports if one["instance"] == instance)


def unseen(written: Written, id_: str) -> None:
    """Nobody looked at how this task or attempt ended while it could still be seen."""
    written.observer[:] = [record for record in written.observer if record.get("id") != id_]


def rename_task(written: Written, old: str, new: str) -> None:
    for records in (written.payloads, written.database, written.observer):
        for record in records:
            record.update({key: new for key in ("id", "task", "task_id") if record.get(key) == old})


def log_of(written: Written, instance: str) -> dict[str, Any]:
    return next(row for row in written.rows("log") if row["instance"] == instance)
