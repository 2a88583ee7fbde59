"""Every setting of the agent, documented where it is declared."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Annotated, Any, ClassVar

from hetuflow_core.errors import Invalid
from hetuflow_core.placement.agents import parse_taint
from hetuflow_core.runtime.config_keys import Derived, Host, Key, Secret, Section, Settings
from hetuflow_core.runtime.config_log import LogSettings
from hetuflow_core.runtime.config_rules import http_url_fault, name_fault, names_fault

_MOST_SLOTS = 10_000


def _default_data_dir(_: Mapping[str, Any], host: Host) -> Path:
    if host.is_root or host.home is None:
        return Path("/var/lib/hetuflow-agent")
    return host.home / ".local/share/hetuflow-agent"


def _default_slots(_: Mapping[str, Any], host: Host) -> int:
    return min(2 * host.cpus, _MOST_SLOTS)


def _token_fault(token: str) -> str | None:
    # It travels in an HTTP header, where anything else would break the request or be cut off.
    if not all("!" <= character <= "~" for character in token):
        return "must be ASCII without spaces: copy it as `hetuflow agent token create` printed it"
    return None


def _taints_fault(taints: tuple[str, ...]) -> str | None:
    for taint in taints:
        try:
            parse_taint(taint)
        except Invalid as error:
            return error.message
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings(Section):
    """The agent of this host: who it is, which server it asks for work, and how much it takes."""

    name: Annotated[
        str,
        Key(
            "Name of this agent, unique among the agents of the system.",
            rule=name_fault,
            derived=Derived("the host's name", lambda _, host: host.name),
            example="worker-1",
        ),
    ]
    server_url: Annotated[
        str, Key("Address of a server, or of a load balancer in front of several.", rule=http_url_fault)
    ] = "http://127.0.0.1:8600"
    token: Annotated[
        Secret,
        Key(
            "Token the agent identifies itself with; `hetuflow agent token create` prints one.",
            rule=_token_fault,
            example="TOKEN",
        ),
    ]
    data_dir: Annotated[
        Path,
        Key(
            "Directory for work directories, logs under way and results not yet reported.",
            derived=Derived(
                "`~/.local/share/hetuflow-agent`, for root `/var/lib/hetuflow-agent`", _default_data_dir
            ),
            example=Path("/var/lib/hetuflow-agent"),
        ),
    ]
    namespaces: Annotated[
        tuple[str, ...],
        Key("Namespaces to take work from; the token has to allow them.", rule=names_fault),
    ] = ("default",)
    slots: Annotated[
        int,
        Key(
            "Most tasks that run at the same time.",
            least=1,
            most=_MOST_SLOTS,
            derived=Derived("twice the number of CPUs", _default_slots),
            example=8,
        ),
    ]
    labels: Annotated[
        Mapping[str, str],
        Key(
            "Facts about this host that jobs may ask for, beside its `os`, `arch` and `hostname`.",
            example={"zone": "eu", "disk": "ssd"},
        ),
    ] = field(default_factory=dict)
    taints: Annotated[
        tuple[str, ...],
        Key(
            "What keeps jobs away that do not tolerate it, as `key=value:NoSchedule`.",
            rule=_taints_fault,
            example=("spot=yes:NoSchedule",),
        ),
    ] = ()
    pools: Annotated[
        tuple[str, ...],
        Key(
            "Pools this agent takes work from; none is the default pool, `default` names it.",
            rule=names_fault,
            example=("gpu",),
        ),
    ] = ()
    stop_timeout: Annotated[
        timedelta,
        Key(
            "How long a stopping agent takes: half for tasks to end, half to report; the rest follows later.",
            least=timedelta(0),
            most=timedelta(minutes=10),
        ),
    ] = timedelta(seconds=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings(Settings):
    """What `hetuflow-agent` reads."""

    agent: HostSettings
    log: LogSettings

    foreign_sections: ClassVar[Mapping[str, str]] = {
        "database": "hetuflow",
        "server": "hetuflow",
        "leader": "hetuflow",
        "retention": "hetuflow",
    }
