"""What the judge says."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

_MOST_EXAMPLES: Final = 20


class Outcome(StrEnum):
    PASS = "pass"  # noqa: S105  a verdict, not a password
    FAIL = "fail"
    # Nothing was seen that could have gone wrong: no ground for a verdict.
    UNKNOWN = "unknown"


@dataclass(frozen=True, slots=True)
class Anomaly:
    what: str
    # Boottime, for the picture; None when it has no place in time.
    at: float | None = None
    # The process or link it belongs to in the picture.
    lane: str | None = None


@dataclass(frozen=True, slots=True)
class Verdict:
    name: str
    outcome: Outcome
    # How many facts were looked at.
    judged: int
    summary: str
    anomalies: Sequence[Anomaly] = ()

    @property
    def examples(self) -> Sequence[Anomaly]:
        return self.anomalies[:_MOST_EXAMPLES]


def judged(name: str, count: int, unit: str, anomalies: Iterable[Anomaly]) -> Verdict:
    """Fail with anomalies, pass without, and unknown when there was nothing to look at."""
    found = list(anomalies)
    if found:
        return Verdict(name, Outcome.FAIL, count, f"{len(found)} wrong of {count} {unit}", found)
    if not count:
        return Verdict(name, Outcome.UNKNOWN, 0, f"there were no {unit} to look at")
    return Verdict(name, Outcome.PASS, count, f"{count} {unit}")


def overall(verdicts: Sequence[Verdict]) -> Outcome:
    outcomes = {verdict.outcome for verdict in verdicts}
    if Outcome.FAIL in outcomes:
        return Outcome.FAIL
    return Outcome.UNKNOWN if Outcome.UNKNOWN in outcomes or not verdicts else Outcome.PASS
