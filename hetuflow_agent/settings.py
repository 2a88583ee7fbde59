"""Every setting of the agent, documented where it is declared."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal

from hetuflow_core.durations import parse_size
from hetuflow_core.errors import Invalid
from hetuflow_core.placement.agents import parse_taint
from hetuflow_core.runtime.config.keys import (
    Derived,
    HostFacts,
    SecretText,
    Setting,
    Settings,
    SettingsSection,
)
from hetuflow_core.runtime.config.log_section import LogSettings
from hetuflow_core.runtime.config.rules import http_url_fault, name_fault, names_fault

_MOST_SLOTS = 10_000
_MOST_OF_A_RESOURCE = 100_000
_MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*(\.\*)?", re.ASCII)

_USER = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,31}")


def _default_data_dir(_: Mapping[str, Any], host: HostFacts) -> Path:
    if host.is_root or host.home is None:
        return Path("/var/lib/hetuflow-agent")
    return host.home / ".local/share/hetuflow-agent"


def _default_slots(_: Mapping[str, Any], host: HostFacts) -> int:
    return min(2 * host.cpus, _MOST_SLOTS)


def _token_fault(token: str) -> str | None:
    # The token is sent in an HTTP header, where other characters would break the request.
    if not all("!" <= character <= "~" for character in token):
        return "must be ASCII without spaces: copy it as `hetuflow agent token create` printed it"
    return None


def parse_resources(given: Mapping[str, str]) -> dict[str, float]:
    """Parse the given amounts of `cpu`, `memory` (in bytes) and `gpu`; raise Invalid for other resources."""
    amounts: dict[str, float] = {}
    for name, text in given.items():
        if name == "memory":
            amounts[name] = parse_size(text)
            continue
        if name not in ("cpu", "gpu"):
            raise Invalid(f'"{name[:64]}" is not a resource: use cpu, memory or gpu')
        try:
            amounts[name] = float(text) if name == "cpu" else int(text)
        except ValueError:
            raise Invalid(f"{name} must be a number, not {text[:64]}") from None
        if not 0 <= amounts[name] <= _MOST_OF_A_RESOURCE:
            raise Invalid(f"{name} must be from 0 to {_MOST_OF_A_RESOURCE}")
    return amounts


def _resources_fault(given: Mapping[str, str]) -> str | None:
    try:
        parse_resources(given)
    except Invalid as error:
        return error.message
    return None


def _taints_fault(taints: tuple[str, ...]) -> str | None:
    for taint in taints:
        try:
            parse_taint(taint)
        except Invalid as error:
            return error.message
    return None


def _networks_fault(networks: tuple[str, ...]) -> str | None:
    for network in networks:
        try:
            ip_network(network, strict=False)
        except ValueError:
            return f"contains {network!r}, which is not a network: write one such as 10.0.0.0/8"
    return None


def _modules_fault(modules: tuple[str, ...]) -> str | None:
    for module in modules:
        if _MODULE.fullmatch(module) is None:
            return f"contains {module!r}, which is not a module: write one such as acme.reports or acme.*"
    return None


def _users_fault(users: tuple[str, ...]) -> str | None:
    for user in users:
        if _USER.fullmatch(user) is None:
            return f"contains {user!r}, which is not a user name"
    return None


def _patterns_fault(patterns: tuple[str, ...]) -> str | None:
    for pattern in patterns:
        try:
            compiled = re.compile(pattern.encode())
        except re.error as error:
            return f"contains {pattern!r}, which is not a regular expression ({error})"
        if compiled.match(b"") is not None:
            return f"contains {pattern!r}, which matches the empty text: it would mask nothing"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class HostSettings(SettingsSection):
    """The agent of this host: its name, its server and its capacity."""

    name: Annotated[
        str,
        Setting(
            "Name of this agent, unique among the agents of the system.",
            rule=name_fault,
            derived=Derived("the host's name", lambda _, host: host.name),
            example="worker-1",
        ),
    ]
    server_url: Annotated[
        str,
        Setting("Address of a server, or of a load balancer in front of several.", rule=http_url_fault),
    ] = "http://127.0.0.1:8600"
    server_ca: Annotated[
        Path | None,
        Setting(
            "File with the certificate authorities to trust instead of those of the host, in PEM format.",
            example=Path("/etc/hetuflow/ca.crt"),
        ),
    ] = None
    client_cert: Annotated[
        Path | None,
        Setting(
            "Client certificate for servers that require one, in PEM format.",
            example=Path("/etc/hetuflow/agent.crt"),
        ),
    ] = None
    client_key: Annotated[
        Path | None,
        Setting(
            "Private key of `client_cert`, if it is not in the same file.",
            example=Path("/etc/hetuflow/agent.key"),
        ),
    ] = None
    token: Annotated[
        SecretText,
        Setting(
            "Token that authenticates the agent; create it with `hetuflow agent token create`.",
            rule=_token_fault,
            example="TOKEN",
        ),
    ]
    data_dir: Annotated[
        Path,
        Setting(
            "Directory for work folders, logs that are not uploaded yet and results that are not "
            "reported yet.",
            derived=Derived(
                "`~/.local/share/hetuflow-agent`, for root `/var/lib/hetuflow-agent`", _default_data_dir
            ),
            example=Path("/var/lib/hetuflow-agent"),
        ),
    ]
    namespaces: Annotated[
        tuple[str, ...],
        Setting("Namespaces to serve; the token must allow them.", rule=names_fault),
    ] = ("default",)
    slots: Annotated[
        int,
        Setting(
            "Maximum number of concurrent tasks.",
            least=1,
            most=_MOST_SLOTS,
            derived=Derived("twice the number of CPUs", _default_slots),
            example=8,
        ),
    ]
    labels: Annotated[
        Mapping[str, str],
        Setting(
            "Labels that jobs can require, in addition to the automatic `os`, `arch` and `hostname`.",
            example={"zone": "eu", "disk": "ssd"},
        ),
    ] = field(default_factory=dict)
    resources: Annotated[
        Mapping[str, str],
        Setting(
            "Resources that tasks can request: `cpu`, `memory` and `gpu`. `cpu` and `memory` are "
            "measured if not given; "
            "`gpu` is 0 if not given.",
            rule=_resources_fault,
            example={"cpu": "4", "memory": "8Gi", "gpu": "1"},
        ),
    ] = field(default_factory=dict)
    taints: Annotated[
        tuple[str, ...],
        Setting(
            "Taints, such as `key=value:NoSchedule`, that keep away jobs without a matching toleration.",
            rule=_taints_fault,
            example=("spot=yes:NoSchedule",),
        ),
    ] = ()
    pools: Annotated[
        tuple[str, ...],
        Setting(
            "Pools that this agent serves; the pool `default` if empty.",
            rule=names_fault,
            example=("gpu",),
        ),
    ] = ()
    http_allow: Annotated[
        tuple[str, ...],
        Setting(
            "Networks outside the public internet that the `http` executor may connect to.",
            rule=_networks_fault,
            example=("10.0.0.0/8", "127.0.0.1/32"),
        ),
    ] = ()
    python_modules: Annotated[
        tuple[str, ...],
        Setting(
            "Modules whose `@task` functions the `python` executor may run; `acme.*` allows a whole package.",
            rule=_modules_fault,
            example=("acme.reports",),
        ),
    ] = ()
    run_as: Annotated[
        tuple[str, ...],
        Setting(
            "Users that tasks may run as (`run.user` of a job); requires that the agent runs as root.",
            rule=_users_fault,
            example=("reports",),
        ),
    ] = ()
    on_stop: Annotated[
        Literal["leave", "drain", "end"],
        Setting(
            "What a stopping agent does with running tasks: `leave` them to the keeper until the next start, "
            "`drain` (wait for them), or `end` them.",
        ),
    ] = "leave"
    cgroups: Annotated[
        Literal["auto", "off"],
        Setting("Whether tasks run in control groups (version 2) if the host supports them."),
    ] = "auto"
    niceness: Annotated[
        int,
        Setting(
            "Niceness of tasks; a higher value gives other programs of the host more CPU time.",
            least=0,
            most=19,
        ),
    ] = 0
    output_limit: Annotated[
        int,
        Setting(
            "Maximum number of bytes that a task may write to standard output and error together "
            "before it is "
            "ended. For a daemon, only output that is not uploaded yet counts.",
            least=1024,
        ),
    ] = 1024**3
    workdir_keep_failed: Annotated[
        timedelta,
        Setting(
            "How long work folders of failed attempts are kept in `failed` under `data_dir`; with 0 "
            "they are not "
            "kept.",
            least=timedelta(0),
            most=timedelta(days=365),
        ),
    ] = timedelta(0)
    workdir_keep_most: Annotated[
        int,
        Setting("Maximum number of bytes of all kept work folders; the oldest are removed first.", least=0),
    ] = 10 * 1024**3
    mask: Annotated[
        tuple[str, ...],
        Setting(
            "Regular expressions for secrets in logs; matching text within a line is masked on this host.",
            rule=_patterns_fault,
            example=("password=\\S+", "AKIA[0-9A-Z]{16}"),
        ),
    ] = ()
    stop_timeout: Annotated[
        timedelta,
        Setting(
            "Maximum stop time: half of it for tasks to end, half to report results. The rest is "
            "reported later.",
            least=timedelta(0),
            most=timedelta(minutes=10),
        ),
    ] = timedelta(seconds=20)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentSettings(Settings):
    """The settings of `hetuflow-agent`."""

    agent: HostSettings
    log: LogSettings

    foreign_sections: ClassVar[Mapping[str, str]] = {
        "database": "hetuflow",
        "server": "hetuflow",
        "leader": "hetuflow",
        "auth": "hetuflow",
        "oidc": "hetuflow",
        "webhooks": "hetuflow",
        "agents": "hetuflow",
        "retention": "hetuflow",
    }
