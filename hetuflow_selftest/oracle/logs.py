"""Every line a task wrote is in its log, once and in order."""

from __future__ import annotations

from collections.abc import Iterator

from hetuflow_selftest.oracle.evidence import Histories, Record, Run
from hetuflow_selftest.oracle.verdict import Anomaly, Verdict, judged


def logs_are_whole(histories: Histories) -> Verdict:
    """Of what succeeded all lines, of what was ended or lost the first so many."""
    stdout = [row for row in histories.rows("log") if row["stream"] == "stdout"]
    logs = {(row["instance"], row["claim_no"]): row for row in stdout}
    ends = {row["id"]: row for row in histories.rows("instance")}
    found: list[Anomaly] = [anomaly for row in stdout for anomaly in _gaps(row)]
    count = 0
    # The last process of each, should there have been two.
    for run in {run.instance: run for run in histories.runs}.values():
        end = ends.get(run.instance)
        if end is not None:
            count += 1
            log = logs.get((run.instance, end["claim_no"]), {"text": ""})
            found += _compare(run, end, log["text"])
    return judged("log lines without gap or repeat", count, "logs", found)


def _gaps(row: Record) -> Iterator[Anomaly]:
    expected = 0
    for offset, length, held in row["chunks"]:
        if offset != expected or length != held:
            yield Anomaly(
                f"the log of {row['instance']} has a chunk at {offset} of {length} behind {expected}"
            )
        expected = offset + length


def _compare(run: Run, end: Record, text: str) -> Iterator[Anomaly]:
    whole = end["status"] == "succeeded"
    lines = text.splitlines()
    # What a killed process wrote last may be cut anywhere.
    complete = lines if whole or text.endswith("\n") else lines[:-1]
    expected = [f"{run.instance} {run.pid} {number}" for number in range(1, run.lines + 1)]
    wrong = complete != expected if whole else complete != expected[: len(complete)]
    if wrong:
        at = next(
            (n for n, (a, b) in enumerate(zip(complete, expected, strict=False)) if a != b),
            min(len(complete), len(expected)),
        )
        found = f"has {len(complete)} lines of {run.lines}, of which line {at + 1} is wrong"
        yield Anomaly(f"the log of {run.instance}, which {end['status']}, {found}", run.seen)
