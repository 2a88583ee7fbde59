"""Starts come neither early nor late: by one bound while all is well, by another while something is wrong."""

from __future__ import annotations

from hetuflow_selftest.oracle.evidence import Histories, Window
from hetuflow_selftest.oracle.fires import due_times
from hetuflow_selftest.oracle.verdict import Anomaly, Outcome, Verdict, judged


def start_latency(histories: Histories) -> list[Verdict]:
    """Of the first process of each fire that may run at once."""
    bounds = histories.facts["bounds"]
    drift = abs(histories.facts.get("clock_drift", 0.0))
    slack = bounds["tolerance"] + drift
    early: list[Anomaly] = []
    late: dict[bool, list[Anomaly]] = {False: [], True: []}
    delays: dict[bool, list[float]] = {False: [], True: []}
    for task, (plan, due) in due_times(histories).items():
        runs = histories.runs_of_task.get(task)
        if not runs:
            continue
        delay = runs[0].started - due
        troubled = disturbed(histories.windows, due, due + max(delay, 0.0), bounds["recovery"])
        delays[troubled].append(delay)
        bound = bounds["fault_latency" if troubled else "calm_latency"]
        said = f"{plan.name}, due {due:.2f}, started {delay:+.2f} s after that"
        if delay < -slack:
            early.append(Anomaly(said, runs[0].started, "fires"))
        if delay > bound + slack:
            late[troubled].append(Anomaly(f"{said} (bound {bound:g} s)", runs[0].started, "fires"))
    count = len(delays[False]) + len(delays[True])
    return [
        judged("nothing started early", count, "starts", early),
        _with_figures("starts on time, calm", delays[False], late[False]),
        _with_figures("starts on time, faults", delays[True], late[True]),
    ]


def disturbed(windows: list[Window], began: float, ended: float, recovery: float) -> bool:
    """Whether any fault, or the time to recover from it, touches this stretch."""
    return any(window.began <= ended and began <= window.ended + recovery for window in windows)


def _with_figures(name: str, delays: list[float], late: list[Anomaly]) -> Verdict:
    verdict = judged(name, len(delays), "starts", late)
    if verdict.outcome is not Outcome.PASS:
        return verdict
    ordered = sorted(delays)
    p50, p99 = (ordered[min(len(ordered) - 1, int(len(ordered) * share))] for share in (0.5, 0.99))
    figures = f"p50 {p50:.3f} s, p99 {p99:.3f} s, most {ordered[-1]:.3f} s"
    return Verdict(name, verdict.outcome, verdict.judged, f"{verdict.summary}: {figures}")
