"""Daemons as documents again, with defaults written out; reading one gives the same daemon."""

from __future__ import annotations

from typing import Any

from hetuflow_core.daemon import DaemonSpec, ProbeSpec
from hetuflow_core.durations import format_duration


def daemon_document(spec: DaemonSpec) -> dict[str, Any]:
    share = spec.max_unavailable
    return {
        **({"per_agent": True} if spec.per_agent else {"replicas": spec.replicas}),
        "restart": spec.restart.value,
        "backoff": {
            "delay": format_duration(spec.backoff.delay),
            "max_delay": format_duration(spec.backoff.max_delay),
            "jitter": spec.backoff.jitter,
        },
        "stable_after": format_duration(spec.stable_after),
        "max_unavailable": str(share) if share.percent else share.number,
        **({"liveness": probe_document(spec.liveness)} if spec.liveness else {}),
        **({"readiness": probe_document(spec.readiness)} if spec.readiness else {}),
    }


def probe_document(probe: ProbeSpec) -> dict[str, Any]:
    return {
        **_question(probe),
        "interval": format_duration(probe.interval),
        "timeout": format_duration(probe.timeout),
        "failure_threshold": probe.failure_threshold,
        "success_threshold": probe.success_threshold,
        "initial_delay": format_duration(probe.initial_delay),
    }


def _question(probe: ProbeSpec) -> dict[str, Any]:
    if probe.http is not None:
        return {"http": {"url": probe.http.url}}
    if probe.tcp is not None:
        return {"tcp": {"port": probe.tcp.port, "host": probe.tcp.host}}
    return {"command": list(probe.command or ())}
