"""What has ended stays as it ended."""

from __future__ import annotations

from collections.abc import Iterator

from hetuflow_selftest.oracle.evidence import Histories
from hetuflow_selftest.oracle.verdict import Anomaly, Verdict, judged


def ends_are_final(histories: Histories) -> Verdict:
    seen = [record for record in histories.observer if record["kind"] in {"ended", "vanished"}]
    return judged("what has ended stays so", len(seen), "ends observed", _changes(histories))


def _changes(histories: Histories) -> Iterator[Anomaly]:
    known: dict[tuple[str, str], str] = {}
    for record in histories.observer:
        if record["kind"] == "vanished":
            yield Anomaly(f"{record['what']} {record['id']} had ended and is gone", record["at"])
        elif record["kind"] == "ended":
            key = record["what"], record["id"]
            if known.setdefault(key, record["status"]) != record["status"]:
                said = f"{record['what']} {record['id']} was {known[key]} and is {record['status']}"
                yield Anomaly(said, record["at"])
    final = {("task", id_): row["status"] for id_, row in histories.tasks.items()}
    final |= {
        ("instance", row["id"]): f"{row['status']} {row['token'] or ''}" for row in histories.rows("instance")
    }
    for (what, id_), status in known.items():
        if final.get((what, id_)) != status:
            yield Anomaly(f"{what} {id_} was {status} and is {final.get((what, id_))} in the end")
