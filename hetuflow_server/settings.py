"""Every setting of the server, documented where it is declared."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import timedelta
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, ClassVar
from urllib.parse import urlsplit

from hetuflow_core.durations import format_duration
from hetuflow_core.errors import Fault
from hetuflow_core.runtime.config.keys import Derived, SecretText, Setting, Settings, SettingsSection
from hetuflow_core.runtime.config.log_section import LogSettings
from hetuflow_core.runtime.config.rules import host_fault, http_url_fault, whole_seconds_fault
from hetuflow_server.auth_settings import AuthSettings, OidcSettings

_POSTGRESQL_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
_HIGHEST_PORT = 65_535


def _database_url_fault(url: str) -> str | None:
    """Return the fault of a database URL. The message does not quote the URL, which contains a password."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in _POSTGRESQL_SCHEMES:
        return "must be of the form postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
    if any(character.isspace() for character in url):
        return "must not contain spaces: write %20 where a name or password has one"
    try:
        hosts = urlsplit(url).netloc.rpartition("@")[2].split(",")
    except ValueError:
        return "has a host that is not a name or an address: write IPv6 addresses in brackets"
    # The port starts after the last colon outside of the brackets of an IPv6 address.
    ports = [host.rpartition("]")[2].rpartition(":")[2] for host in hosts if ":" in host.rpartition("]")[2]]
    if not all(
        port.isascii() and port.isdigit() and 0 < int(port) <= _HIGHEST_PORT for port in ports if port
    ):
        return "has a port that is not a number from 1 to 65535: in a password write : / @ as %3A %2F %40"
    return None


def _networks_fault(given: tuple[str, ...]) -> str | None:
    for network in given:
        try:
            ip_network(network)
        except ValueError:
            return f"contains {network!r}, which is not a network: write one such as 10.0.0.0/8"
    return None


def _origins_fault(given: tuple[str, ...]) -> str | None:
    for origin in given:
        if http_url_fault(origin) is not None or urlsplit(origin).path:
            return f"contains {origin!r}, which is not an origin: write one such as https://dashboard.example.com"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings(SettingsSection):
    """The PostgreSQL database that all servers share. It contains the whole state of the system."""

    url: Annotated[
        SecretText,
        Setting(
            "Address of the database. `postgres://` and `postgresql+psycopg://` mean the same as `postgresql://`.",
            rule=_database_url_fault,
            example="postgresql://hetuflow:PASSWORD@127.0.0.1:5432/hetuflow",
        ),
    ]
    pool_size: Annotated[
        int,
        Setting("Maximum number of connections of one server for requests and loops.", least=2, most=500),
    ] = 10
    connect_timeout: Annotated[
        timedelta,
        Setting(
            "How long to wait for a connection, in whole seconds.",
            least=timedelta(seconds=2),
            most=timedelta(minutes=5),
            rule=whole_seconds_fault,
        ),
    ] = timedelta(seconds=5)
    statement_timeout: Annotated[
        timedelta,
        Setting(
            "PostgreSQL cancels statements that run longer than this.",
            least=timedelta(seconds=1),
            most=timedelta(hours=1),
        ),
    ] = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings(SettingsSection):
    """The address, certificates and keys of this server."""

    host: Annotated[
        str, Setting("Address to listen on; `0.0.0.0` or `::` means all addresses.", rule=host_fault)
    ] = "127.0.0.1"
    port: Annotated[int, Setting("TCP port; 0 picks a free port.", least=0, most=_HIGHEST_PORT)] = 8600
    secret_key: Annotated[
        SecretText,
        Setting(
            "Key that encrypts secrets and signs the access tokens of users; must be the same on all "
            "servers. It has no default: "
            'create one with `python3 -c "import secrets; print(secrets.token_urlsafe(48))"`.',
            min_length=32,
            # Too short to be accepted, so that an unchanged template does not start with a public key.
            example="CHANGE-ME",
        ),
    ]
    tls_cert: Annotated[
        Path | None,
        Setting(
            "TLS certificate in PEM format, with its intermediate certificates; enables HTTPS. SIGHUP "
            "reloads it.",
            example=Path("/etc/hetuflow/server.crt"),
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        Setting("Private key of the certificate in PEM format.", example=Path("/etc/hetuflow/server.key")),
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        Setting(
            "Require client certificates of these authorities.",
            example=Path("/etc/hetuflow/clients-ca.crt"),
        ),
    ] = None
    secret_keyring: Annotated[
        Path | None,
        Setting(
            "File with additional keys that decrypt secrets, one per line: former or future values of "
            "`secret_key`. See Rotating the key in the guide to secrets.",
            example=Path("/etc/hetuflow/keyring"),
        ),
    ] = None
    advertise_url: Annotated[
        str | None,
        Setting(
            "Address at which agents and other servers reach this server; the listen address if not given.",
            rule=http_url_fault,
            example="https://hetuflow.example.com",
        ),
    ] = None
    weight: Annotated[
        int,
        Setting(
            "Share of namespaces that this server owns, relative to others; 0: only pinned namespaces.",
            least=0,
            most=10_000,
        ),
    ] = 100
    trusted_proxies: Annotated[
        tuple[str, ...],
        Setting(
            "Networks of proxies whose X-Forwarded-For header is trusted.",
            rule=_networks_fault,
            example=("10.0.0.0/8",),
        ),
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...],
        Setting(
            "Origins whose pages may call the REST API from a browser. The pages must send a key or a token.",
            rule=_origins_fault,
            example=("https://dashboard.example.com",),
        ),
    ] = ()
    stop_timeout: Annotated[
        timedelta,
        Setting(
            "How long a stopping server waits for open requests and loops before it cancels them.",
            least=timedelta(0),
            most=timedelta(minutes=10),
        ),
    ] = timedelta(seconds=20)

    def check(self) -> Iterator[Fault]:
        for given, missing in (
            ("tls_cert", "tls_key"),
            ("tls_key", "tls_cert"),
            ("tls_client_ca", "tls_cert"),
        ):
            if getattr(self, given) is not None and getattr(self, missing) is None:
                yield Fault(missing, f"is required with {given}")


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaderSettings(SettingsSection):
    """Election of the leader, which binds namespaces to servers and runs cluster-wide work.

    Use the same values on all servers.
    """

    ttl: Annotated[
        timedelta,
        Setting(
            "How long leadership lasts without renewal: the longest time without a leader after a crash.",
            least=timedelta(seconds=1),
            most=timedelta(minutes=5),
        ),
    ] = timedelta(seconds=10)
    renew_every: Annotated[
        timedelta,
        Setting(
            "How often the leader renews its leadership.",
            least=timedelta(milliseconds=100),
            derived=Derived("a quarter of ttl", lambda values, _: values["ttl"] * 0.25),
            example=timedelta(seconds=2.5),
        ),
    ]
    give_up_after: Annotated[
        timedelta,
        Setting(
            "A leader that cannot renew for this long steps down, before another server can take over.",
            least=timedelta(milliseconds=200),
            derived=Derived("0.6 of ttl", lambda values, _: values["ttl"] * 0.6),
            example=timedelta(seconds=6),
        ),
    ]

    heartbeat_every: Annotated[
        timedelta,
        Setting(
            "How often each server sends a heartbeat.",
            least=timedelta(milliseconds=100),
            most=timedelta(minutes=1),
        ),
    ] = timedelta(seconds=2)
    dead_after: Annotated[
        timedelta,
        Setting(
            "A server without a heartbeat for this long is considered dead; other servers take over "
            "its namespaces.",
            least=timedelta(milliseconds=200),
            derived=Derived("four times heartbeat_every", lambda values, _: values["heartbeat_every"] * 4),
            example=timedelta(seconds=8),
        ),
    ]

    def check(self) -> Iterator[Fault]:
        if self.dead_after < 2 * self.heartbeat_every:
            dead, beat = format_duration(self.dead_after), format_duration(self.heartbeat_every)
            message = f"must be at least twice heartbeat_every: it is {dead} and heartbeat_every is {beat}"
            yield Fault("dead_after", message)
        ttl, give_up, renew = (
            format_duration(setting) for setting in (self.ttl, self.give_up_after, self.renew_every)
        )
        if self.give_up_after >= self.ttl:
            yield Fault("give_up_after", f"must be shorter than ttl: it is {give_up} and ttl is {ttl}")
        if self.renew_every >= self.give_up_after:
            message = f"must be shorter than give_up_after: it is {renew} and give_up_after is {give_up}"
            yield Fault("renew_every", message)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsSettings(SettingsSection):
    """Admission of agents. The settings of an agent are in the `[agent]` section of its host."""

    require_approval: Annotated[
        bool,
        Setting("New agents get no work until they are approved with `hetuflow agent approve`."),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings(SettingsSection):
    """Messages to other systems when tasks end."""

    allow: Annotated[
        tuple[str, ...],
        Setting(
            "Private networks that webhooks may call, such as `10.1.0.0/16`. Never allow the network "
            "of a cloud metadata service.",
            rule=_networks_fault,
        ),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings(SettingsSection):
    """How long data is kept, and its maximum size. Unfinished tasks are never removed."""

    tasks: Annotated[
        timedelta,
        Setting(
            "How long finished tasks, their attempts and their backfills are kept.",
            least=timedelta(hours=1),
            most=timedelta(days=3650),
        ),
    ] = timedelta(days=30)
    logs: Annotated[
        timedelta,
        Setting("How long task logs are kept.", least=timedelta(hours=1), most=timedelta(days=3650)),
    ] = timedelta(days=14)
    artifacts: Annotated[
        timedelta,
        Setting(
            "How long artifacts of tasks are kept.",
            least=timedelta(hours=1),
            most=timedelta(days=3650),
        ),
    ] = timedelta(days=14)
    events: Annotated[
        timedelta,
        Setting(
            "How long events and their keys are kept.",
            least=timedelta(hours=1),
            most=timedelta(days=3650),
        ),
    ] = timedelta(days=30)
    audit: Annotated[
        timedelta,
        Setting(
            "How long audit entries are kept; they are removed by whole days.",
            least=timedelta(days=1),
            most=timedelta(days=3650),
        ),
    ] = timedelta(days=365)
    usage: Annotated[
        timedelta,
        Setting(
            "How long the resource usage of agent hosts is kept, per minute.",
            least=timedelta(hours=1),
            most=timedelta(days=365),
        ),
    ] = timedelta(days=7)
    artifact_cap: Annotated[
        int,
        Setting(
            "Maximum size of one artifact in MiB; all artifacts of an attempt may have four times that.",
            least=1,
            most=1024,
        ),
    ] = 64
    log_cap: Annotated[
        int,
        Setting(
            "Maximum size of one log stream in MiB. A longer log is cut; that of a daemon loses its "
            "oldest part.",
            least=1,
            most=1024 * 1024,
        ),
    ] = 64
    partition_ahead: Annotated[
        timedelta,
        Setting(
            "How far in advance daily partitions are created, so that writes continue if maintenance fails.",
            least=timedelta(days=1),
            most=timedelta(days=60),
        ),
    ] = timedelta(days=7)


_FOREIGN = {"agent": "hetuflow-agent"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(Settings):
    """The settings of `hetuflow server`."""

    database: DatabaseSettings
    server: HttpSettings
    leader: LeaderSettings
    auth: AuthSettings
    oidc: OidcSettings
    agents: AgentsSettings
    retention: RetentionSettings
    webhooks: WebhookSettings
    log: LogSettings

    foreign_sections: ClassVar[Mapping[str, str]] = _FOREIGN


@dataclass(frozen=True, slots=True, kw_only=True)
class StoreSettings(Settings):
    """The settings of commands that use only the database: a migration needs no secret key."""

    database: DatabaseSettings
    log: LogSettings

    foreign_sections: ClassVar[Mapping[str, str]] = {
        "server": "hetuflow",
        "leader": "hetuflow",
        "auth": "hetuflow",
        "oidc": "hetuflow",
        "agents": "hetuflow",
        "retention": "hetuflow",
        "webhooks": "hetuflow",
        **_FOREIGN,
    }
