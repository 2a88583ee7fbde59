"""Whether each fault hit anything: what had no effect proves nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from hetuflow_selftest.oracle.evidence import Histories, Window
from hetuflow_selftest.oracle.verdict import Anomaly, Outcome, Verdict

# None: it had its effect; else what was wanting.
Effect = Callable[[Histories, Window], str | None]


def effects(histories: Histories) -> list[Verdict]:
    verdicts = [_verdict(histories, window) for window in histories.windows]
    return verdicts + [
        Verdict(f"fault: {record['fault']}", Outcome.UNKNOWN, 0, f"not done: {record['why']}")
        for record in histories.nemesis
        if record["kind"] == "unsupported"
    ]


def _verdict(histories: Histories, window: Window) -> Verdict:
    wanting = _EFFECTS[window.fault](histories, window)
    name = f"fault: {window.fault}"
    lasted = f"{window.victim}, {window.ended - window.began:.1f} s"
    if wanting is None:
        return Verdict(name, Outcome.PASS, 1, f"{lasted}, was felt")
    return Verdict(
        name,
        Outcome.UNKNOWN,
        1,
        f"{lasted}, had no effect: {wanting}",
        [Anomaly(wanting, window.began, window.victim)],
    )


def _leader_changed(histories: Histories, window: Window) -> str | None:
    """The victim led, another one came after it, and fires were made by that one."""
    if window.facts.get("epoch") is None:
        return "the victim did not lead"
    later = [row for row in histories.rows("leader_term") if row["epoch"] > window.facts["epoch"]]
    if not later:
        return "nobody else has led"
    took_over = min(row["committed_at"] for row in later)
    if not any(row["created_at"] > took_over for row in histories.tasks.values() if row["schedule_id"]):
        return "nothing was generated afterwards"
    return None


_EFFECTS: Final[Mapping[str, Effect]] = {
    "kill-leader": _leader_changed,
}
