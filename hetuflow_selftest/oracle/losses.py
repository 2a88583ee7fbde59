"""Nothing is given up that was heard of a moment ago."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator

from hetuflow_selftest.oracle.evidence import Histories, Record
from hetuflow_selftest.oracle.verdict import Anomaly, Verdict, judged

# Of a lease: whoever was heard of within it keeps the work, with room for clocks and slow commits.
_SURE = 0.5


def losses_are_true(histories: Histories) -> Verdict:
    """Judge what servers declared lost by the heartbeats that they had answered before."""
    lost = [row for row in histories.rows("instance") if row["reason"] == "lease_expired"]
    ended = len(histories.rows("instance"))
    return judged("nothing that was heard of is lost", ended, "attempts", _untrue(histories, lost))


def _untrue(histories: Histories, lost: list[Record]) -> Iterator[Anomaly]:
    heard: dict[str, list[tuple[float, float]]] = defaultdict(list)
    for record in histories.proxy:
        for instance in record.get("kept", ()):
            # Renewed no sooner than it was asked for; an answer may come long after that.
            heard[instance].append((record["at"], record["answered"]))
    sure = histories.facts["lease"] * _SURE
    for row in lost:
        given_up = row["finished_at"] - histories.wall_minus_boottime
        last = max((asked for asked, answered in heard[row["id"]] if answered <= given_up), default=None)
        if last is not None and given_up - last < sure:
            said = f"instance {row['id']} was lost {given_up - last:.2f} s after it had been heard of"
            yield Anomaly(said, given_up, row["agent"])
