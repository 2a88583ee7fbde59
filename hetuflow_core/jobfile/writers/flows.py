"""Flows as documents again; reading one gives the same flow."""

from __future__ import annotations

from collections.abc import Callable
from datetime import timedelta
from typing import Any

from hetuflow_core.durations import format_duration
from hetuflow_core.flow import ItemShare
from hetuflow_core.jobfile.documents import Approval, EventWait, Fleet, FlowNode, FlowSpec, JobSpec, MapOver


def flow_document(spec: FlowSpec, work: Callable[[JobSpec], dict[str, Any]]) -> dict[str, Any]:
    """`work` writes down what a node with `run` does."""
    return {"nodes": [_node(node, work) for node in spec.nodes], "on_failure": spec.on_failure.value}


def _node(node: FlowNode, work: Callable[[JobSpec], dict[str, Any]]) -> dict[str, Any]:
    said = {
        "when": node.when,
        "on_failure": node.on_failure and node.on_failure.value,
        "job": node.job,
        "flow": node.flow,
        "approval": node.approval and _approval(node.approval),
        "wait_for_event": node.wait_for_event and _event_wait(node.wait_for_event),
        "wait_until": node.wait_until,
        "params": node.params or None,
        "map": node.map and _map(node.map),
        "fleet": node.fleet and _fleet(node.fleet),
        "deadline": _duration(node.deadline),
        "priority": node.priority,
    }
    return {
        "name": node.name,
        "needs": list(node.needs),
        "trigger": node.trigger.value,
        **(work(node.work) if node.work is not None else {}),
        **{key: value for key, value in said.items() if value is not None},
    }


def _approval(approval: Approval) -> dict[str, Any]:
    return {
        "approvers": list(approval.approvers),
        "timeout": _duration(approval.timeout),
        "message": approval.message,
    }


def _event_wait(wait: EventWait) -> dict[str, Any]:
    return {"name": wait.name, "filter": wait.filter, "timeout": _duration(wait.timeout)}


def _map(over: MapOver) -> dict[str, Any]:
    return {"over": over.over, "max_parallel": over.max_parallel, "quorum": _share(over.quorum)}


def _fleet(fleet: Fleet) -> dict[str, Any]:
    return {
        "waves": [_share(wave) for wave in fleet.waves],
        "max_unavailable": _share(fleet.max_unavailable),
        "quorum": _share(fleet.quorum),
    }


def _share(share: ItemShare | None) -> str | int | None:
    if share is None:
        return None
    return share.count if share.percent is None else f"{share.percent}%"


def _duration(duration: timedelta | None) -> str | None:
    return format_duration(duration) if duration is not None else None
