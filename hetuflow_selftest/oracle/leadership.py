"""One leader per term, and no write of a former one."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from itertools import pairwise

from hetuflow_selftest.oracle.evidence import Histories, Record
from hetuflow_selftest.oracle.verdict import Anomaly, Verdict, judged


def leadership(histories: Histories) -> list[Verdict]:
    terms = sorted(histories.rows("leader_term"), key=lambda row: row["epoch"])
    writes = histories.rows("leader_write")
    return [
        judged("one holder per term", len(terms), "terms", _shared(histories, terms)),
        judged("no write of a former leader", len(writes), "writes", _stale(histories, terms, writes)),
    ]


def _shared(histories: Histories, terms: list[Record]) -> Iterator[Anomaly]:
    """By what was noted at the end, and by what was seen meanwhile."""
    seen = [record for record in histories.observer if record["kind"] == "leader"]
    holders: dict[int, set[str]] = defaultdict(set)
    for record in (*terms, *seen):
        holders[record["epoch"]].add(record["holder"])
    for epoch, some in holders.items():
        if len(some) > 1:
            yield Anomaly(f"term {epoch} has {len(some)} holders: {', '.join(sorted(some))}")
    for record in seen:
        if record["fence_epoch"] == record["epoch"] and record["fence_holder"] != record["holder"]:
            yield Anomaly(f"term {record['epoch']} has a lock of one and a fence of another", record["at"])
    for earlier, later in pairwise(seen):
        if later["epoch"] < earlier["epoch"]:
            yield Anomaly(f"term {earlier['epoch']} was followed by {later['epoch']}", later["at"])
    yield from _revenants(histories, terms)


def _revenants(histories: Histories, terms: list[Record]) -> Iterator[Anomaly]:
    """Who was killed never leads again: a new process has a new name."""
    for window in histories.windows:
        holder, epoch = window.facts.get("holder"), window.facts.get("epoch", 0)
        if window.facts.get("died") and any(
            row["holder"] == holder and row["epoch"] > epoch for row in terms
        ):
            yield Anomaly(f"{holder} was killed and leads again", window.ended, window.victim)


def _stale(histories: Histories, terms: list[Record], writes: list[Record]) -> Iterator[Anomaly]:
    """A leader's write is committed after its term was and before the next one is."""
    home = {row["id"]: row["url"] for row in histories.rows("server")}
    begun = [(row["committed_at"], home.get(row["holder"], row["holder"]), row["epoch"]) for row in terms]
    for write in writes:
        reigning = [term for term in begun if term[0] <= write["committed_at"]]
        _, url, epoch = max(reigning, default=(0.0, "nobody", 0))
        if url != write["url"]:
            yield Anomaly(
                f"{write['url']} wrote {write['what']} in term {epoch}, which is {url}'s",
                write["committed_at"] - histories.wall_minus_boottime,
                write["server"],
            )
