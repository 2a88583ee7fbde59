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
from hetuflow_core.runtime.config.keys import Derived, HostFacts, Key, SecretText, Section, Settings
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
    # It travels in an HTTP header, where anything else would break the request or be cut off.
    if not all("!" <= character <= "~" for character in token):
        return "must be ASCII without spaces: copy it as `hetuflow agent token create` printed it"
    return None


def parse_resources(given: Mapping[str, str]) -> dict[str, float]:
    """`cpu`, `memory` in bytes and `gpu` as far as they are given; raise Invalid for anything else."""
    amounts: dict[str, float] = {}
    for name, text in given.items():
        if name == "memory":
            amounts[name] = parse_size(text)
            continue
        if name not in ("cpu", "gpu"):
            raise Invalid(f'"{name[:64]}" is no resource: use cpu, memory or gpu')
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
            return f"holds {network!r}, which is no network: write one such as 10.0.0.0/8"
    return None


def _modules_fault(modules: tuple[str, ...]) -> str | None:
    for module in modules:
        if _MODULE.fullmatch(module) is None:
            return f"holds {module!r}, which is no module: write one such as acme.reports or acme.*"
    return None


def _users_fault(users: tuple[str, ...]) -> str | None:
    for user in users:
        if _USER.fullmatch(user) is None:
            return f"holds {user!r}, which is no name of a user"
    return None


def _patterns_fault(patterns: tuple[str, ...]) -> str | None:
    for pattern in patterns:
        try:
            compiled = re.compile(pattern.encode())
        except re.error as error:
            return f"holds {pattern!r}, which is no regular expression ({error})"
        if compiled.match(b"") is not None:
            return f"holds {pattern!r}, which matches the empty text: it would mask nothing"
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
    server_ca: Annotated[
        Path | None,
        Key(
            "File with the authorities to trust in place of those of the host, in PEM form.",
            example=Path("/etc/hetuflow/ca.crt"),
        ),
    ] = None
    client_cert: Annotated[
        Path | None,
        Key(
            "Certificate to show to servers that want one, in PEM form.",
            example=Path("/etc/hetuflow/agent.crt"),
        ),
    ] = None
    client_key: Annotated[
        Path | None,
        Key(
            "Private key of `client_cert`, if it is not in the same file.",
            example=Path("/etc/hetuflow/agent.key"),
        ),
    ] = None
    token: Annotated[
        SecretText,
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
    resources: Annotated[
        Mapping[str, str],
        Key(
            "What tasks that ask for `cpu`, `memory` or `gpu` may take; what is not given is measured, "
            "except `gpu`, of which there is none then.",
            rule=_resources_fault,
            example={"cpu": "4", "memory": "8Gi", "gpu": "1"},
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
    http_allow: Annotated[
        tuple[str, ...],
        Key(
            "Networks outside the public internet that the `http` executor may connect to.",
            rule=_networks_fault,
            example=("10.0.0.0/8", "127.0.0.1/32"),
        ),
    ] = ()
    python_modules: Annotated[
        tuple[str, ...],
        Key(
            "Modules whose `@task` functions the `python` executor may run; `acme.*` is all of a package.",
            rule=_modules_fault,
            example=("acme.reports",),
        ),
    ] = ()
    run_as: Annotated[
        tuple[str, ...],
        Key(
            "Users of this host that tasks may run as (`run.user` of a job); only an agent of root can.",
            rule=_users_fault,
            example=("reports",),
        ),
    ] = ()
    on_stop: Annotated[
        Literal["leave", "drain", "end"],
        Key(
            "What a stopping agent does with running tasks: `leave` them to the keeper, where the next start "
            "finds them, wait for them (`drain`), or `end` them.",
        ),
    ] = "leave"
    cgroups: Annotated[
        Literal["auto", "off"],
        Key("Whether tasks are put into control groups (version 2) where this host allows it."),
    ] = "auto"
    niceness: Annotated[
        int, Key("How far tasks stand back for other programs of the host.", least=0, most=19)
    ] = 0
    output_limit: Annotated[
        int,
        Key(
            "Most bytes a task may write to standard output and error together; then it is ended. Of a "
            "daemon counts what was not shipped yet.",
            least=1024,
        ),
    ] = 1024**3
    workdir_keep_failed: Annotated[
        timedelta,
        Key(
            "How long the directory of an attempt that failed is kept in `failed` under `data_dir`; 0 is not "
            "at all.",
            least=timedelta(0),
            most=timedelta(days=365),
        ),
    ] = timedelta(0)
    workdir_keep_most: Annotated[
        int,
        Key("Most bytes of disk that kept directories may take together; the oldest go first.", least=0),
    ] = 10 * 1024**3
    mask: Annotated[
        tuple[str, ...],
        Key(
            "Regular expressions for secrets in logs: what they match within a line never leaves this host.",
            rule=_patterns_fault,
            example=("password=\\S+", "AKIA[0-9A-Z]{16}"),
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
        "auth": "hetuflow",
        "oidc": "hetuflow",
        "webhooks": "hetuflow",
        "agents": "hetuflow",
        "retention": "hetuflow",
    }
