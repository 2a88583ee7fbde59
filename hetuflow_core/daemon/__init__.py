"""Daemons: work that is kept running. What one says (`DaemonSpec`), and the decisions about its slots."""

from hetuflow_core.daemon.deciding import (
    Action,
    Agent,
    Daemon,
    End,
    EndReason,
    Live,
    Retire,
    Slot,
    Start,
    Untie,
    decide,
)
from hetuflow_core.daemon.describing import describe
from hetuflow_core.daemon.restarting import Aftermath, after_end, longest_delay
from hetuflow_core.daemon.showing import SlotState, show
from hetuflow_core.daemon.spec import (
    DaemonSpec,
    HttpProbe,
    Probe,
    Restart,
    RestartBackoff,
    Share,
    TcpProbe,
)
from hetuflow_core.daemon.spreading import Host, spread

__all__ = [
    "Action",
    "Aftermath",
    "Agent",
    "Daemon",
    "DaemonSpec",
    "End",
    "EndReason",
    "Host",
    "HttpProbe",
    "Live",
    "Probe",
    "Restart",
    "RestartBackoff",
    "Retire",
    "Share",
    "Slot",
    "SlotState",
    "Start",
    "TcpProbe",
    "Untie",
    "after_end",
    "decide",
    "describe",
    "longest_delay",
    "show",
    "spread",
]
