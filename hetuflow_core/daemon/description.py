"""Describe a daemon in a sentence, shown instead of upcoming fires."""

from __future__ import annotations

from hetuflow_core.daemon.spec import DaemonSpec, Restart
from hetuflow_core.durations import format_duration


def describe(spec: DaemonSpec) -> str:
    if spec.per_agent:
        what = "keeps one instance running on every agent that may run the job"
    elif spec.replicas == 1:
        what = "keeps one instance running"
    else:
        what = f"keeps {spec.replicas} instances running"
    return f"{what}; {_restarts(spec)}"


def _restarts(spec: DaemonSpec) -> str:
    if spec.restart is Restart.NEVER:
        return "an instance that ends is not restarted"
    ends = "fails" if spec.restart is Restart.ON_FAILURE else "ends"
    delays = f"{format_duration(spec.backoff.delay)} up to {format_duration(spec.backoff.max_delay)}"
    return f"an instance that {ends} is restarted, after {delays} if it keeps ending early"
