"""Histories as the judge reads them: processes, windows of faults, rows of the final database."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

Record = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Run:
    """One process of a payload, as far as it has told of itself."""

    task: str
    instance: str
    pid: int
    started: float
    # When it last showed that it lives.
    seen: float
    # None: it was killed, or is not over.
    ended: float | None
    # How many lines it has begun to write.
    lines: int
    agent: str = ""


@dataclass(frozen=True, slots=True)
class Window:
    """The time in which a fault was there."""

    fault: str
    victim: str
    began: float
    ended: float
    facts: Record = field(default_factory=dict)


@dataclass(frozen=True)
class Histories:
    """Everything that was written down; times are boottime, except those of rows, which are times of day."""

    clients: Sequence[Record] = ()
    payloads: Sequence[Record] = ()
    proxy: Sequence[Record] = ()
    nemesis: Sequence[Record] = ()
    observer: Sequence[Record] = ()
    database: Sequence[Record] = ()
    scene: Sequence[Record] = ()

    @cached_property
    def runs(self) -> list[Run]:
        by_process: dict[tuple[str, int], list[Record]] = defaultdict(list)
        for record in self.payloads:
            by_process[record["instance"], record["pid"]].append(record)
        return sorted(
            (_run(instance, pid, records) for (instance, pid), records in by_process.items()),
            key=lambda run: (run.started, run.instance, run.pid),
        )

    @cached_property
    def runs_of_task(self) -> dict[str, list[Run]]:
        found: dict[str, list[Run]] = defaultdict(list)
        for run in self.runs:
            found[run.task].append(run)
        return found

    @cached_property
    def windows(self) -> list[Window]:
        """Faults from when they were begun until they were undone, or until the end of everything."""
        began = {record["id"]: record for record in self.nemesis if record["kind"] == "begin"}
        undone = {record["id"]: record for record in self.nemesis if record["kind"] == "end"}
        return [
            Window(
                record["fault"],
                record.get("victim", ""),
                record["at"],
                undone[id_]["at"] if id_ in undone else float("inf"),
                {**record, **undone.get(id_, {})},
            )
            for id_, record in began.items()
        ]

    @cached_property
    def facts(self) -> Record:
        """What the scene said of itself: bounds, settings, offsets of clocks."""
        merged: dict[str, Any] = {}
        for record in self.scene:
            merged |= {key: value for key, value in record.items() if key not in {"at", "kind"}}
        return merged

    @cached_property
    def wall_minus_boottime(self) -> float:
        return float(self.facts.get("wall_minus_boottime", 0.0))

    @cached_property
    def _tables(self) -> dict[str, list[Record]]:
        found: dict[str, list[Record]] = defaultdict(list)
        for record in self.database:
            found[record["kind"]].append(record)
        return found

    def rows(self, table: str) -> list[Record]:
        return self._tables.get(table, [])

    @cached_property
    def tasks(self) -> dict[str, Record]:
        return {row["id"]: row for row in self.rows("task")}

    @cached_property
    def agents(self) -> dict[str, str]:
        """Return {attempt: the agent that had it}."""
        return {row["id"]: row["agent"] for row in self.rows("instance")}

    def operations(self, *names: str) -> list[Record]:
        """What clients asked for, one record each, written when it was answered or given up."""
        return [record for record in self.clients if record["kind"] == "operation" and record["op"] in names]


def _run(instance: str, pid: int, records: Sequence[Record]) -> Run:
    ordered = sorted(records, key=lambda record: record["at"])
    started = next((record for record in ordered if record["kind"] == "start"), ordered[0])
    ended = next((record["at"] for record in ordered if record["kind"] == "end"), None)
    lines = max((record["line"] for record in ordered), default=0)
    return Run(
        started["task"],
        instance,
        pid,
        started["at"],
        ordered[-1]["at"],
        ended,
        lines,
        started.get("agent", ""),
    )
