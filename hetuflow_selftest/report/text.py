"""The report as text: a table of verdicts, and what was wrong; and the same for programs."""

from __future__ import annotations

import json
from collections.abc import Sequence

from hetuflow_selftest.nemesis.faults import FAULTS
from hetuflow_selftest.oracle.verdict import Outcome
from hetuflow_selftest.run import Judgement
from hetuflow_selftest.settings import TOLD_BOUNDS, RunSettings, quick

_MARKS = {Outcome.PASS: "ok", Outcome.FAIL: "FAIL", Outcome.UNKNOWN: "?"}


def as_text(settings: RunSettings, found: Judgement) -> str:
    width = max(len(verdict.name) for verdict in found.verdicts)
    network = found.histories.facts.get("network")
    lines = [f"The parts were kept apart by {network}.", f"{'':4}  {'verdict':{width}}  what was seen"]
    for verdict in found.verdicts:
        lines.append(f"{_MARKS[verdict.outcome]:4}  {verdict.name:{width}}  {verdict.summary}")
        if verdict.outcome is Outcome.FAIL:
            lines += [f"        {anomaly.what}" for anomaly in verdict.examples]
    return "\n".join([*lines, "", f"{found.outcome.value}. The same again: {repeat_command(settings)}"])


def as_json(settings: RunSettings, found: Judgement) -> str:
    report = {
        "outcome": found.outcome,
        "repeat": repeat_command(settings),
        "settings": settings.facts(),
        "verdicts": [
            {
                "name": verdict.name,
                "outcome": verdict.outcome,
                "judged": verdict.judged,
                "summary": verdict.summary,
                "anomalies": [
                    {"what": one.what, "at": one.at, "lane": one.lane} for one in verdict.anomalies
                ],
            }
            for verdict in found.verdicts
        ],
    }
    return json.dumps(report, indent=2)


def repeat_command(settings: RunSettings) -> str:
    """Return what makes the same run again, with every option that is not as it is without being told."""
    usual = quick(settings.seed, settings.faults) if settings.is_quick else RunSettings(settings.seed, ())
    words = ["hetuflow selftest", f"--seed {settings.seed}", *(["--quick"] if settings.is_quick else [])]
    words += _told(settings, usual, ("network", "rate"))
    words += _told(settings.bounds, usual.bounds, TOLD_BOUNDS)
    if set(settings.faults) != set(FAULTS):
        words += [f"--fault {name}" for name in settings.faults]
    return " ".join(words)


def _told(ours: object, usual: object, names: Sequence[str]) -> list[str]:
    values = [(name.replace("_", "-"), getattr(ours, name), getattr(usual, name)) for name in names]
    return [f"--{option} {value}" for option, value, default in values if value != default]
