"""A daemon in a sentence: what takes the place of coming fires."""

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
        return "one that ends by itself is not started again"
    ends = "fails" if spec.restart is Restart.ON_FAILURE else "ends"
    delays = f"{format_duration(spec.backoff.delay)} up to {format_duration(spec.backoff.max_delay)}"
    return f"one that {ends} is started again, after {delays} while it does not last"
