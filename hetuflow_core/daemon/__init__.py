"""Daemons, whose instances are kept running: their definition (`DaemonSpec`) and slot decisions."""

from hetuflow_core.daemon.agent_order import DaemonHost, spread
from hetuflow_core.daemon.description import describe
from hetuflow_core.daemon.probe_spec import HttpProbe, ProbeSpec, TcpProbe
from hetuflow_core.daemon.restarts import RestartDecision, after_end, longest_delay
from hetuflow_core.daemon.slot_decisions import (
    Action,
    DaemonAgent,
    DaemonState,
    EndInstance,
    EndReason,
    FreeFromAgent,
    LiveInstance,
    RetireSlot,
    Slot,
    StartInstance,
    decide,
)
from hetuflow_core.daemon.slot_status import SlotState, show
from hetuflow_core.daemon.spec import (
    MOST_REPLICAS,
    DaemonSpec,
    Restart,
    RestartBackoff,
    SlotShare,
)

__all__ = [
    "MOST_REPLICAS",
    "Action",
    "DaemonAgent",
    "DaemonHost",
    "DaemonSpec",
    "DaemonState",
    "EndInstance",
    "EndReason",
    "FreeFromAgent",
    "HttpProbe",
    "LiveInstance",
    "ProbeSpec",
    "Restart",
    "RestartBackoff",
    "RestartDecision",
    "RetireSlot",
    "Slot",
    "SlotShare",
    "SlotState",
    "StartInstance",
    "TcpProbe",
    "after_end",
    "decide",
    "describe",
    "longest_delay",
    "show",
    "spread",
]
