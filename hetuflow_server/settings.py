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
from hetuflow_core.runtime.config.keys import Derived, Key, SecretText, Section, Settings
from hetuflow_core.runtime.config.log_section import LogSettings
from hetuflow_core.runtime.config.rules import host_fault, http_url_fault, whole_seconds_fault
from hetuflow_server.auth_settings import AuthSettings, OidcSettings

_POSTGRESQL_SCHEMES = ("postgresql", "postgres", "postgresql+psycopg")
_HIGHEST_PORT = 65_535


def _database_url_fault(url: str) -> str | None:
    """What keeps `url` from naming a PostgreSQL database; repeats nothing of it, a password is in it."""
    scheme, separator, _ = url.partition("://")
    if not separator or scheme not in _POSTGRESQL_SCHEMES:
        return "must be of the form postgresql://USER:PASSWORD@HOST:PORT/DATABASE"
    if any(character.isspace() for character in url):
        return "must not contain spaces: write %20 where a name or password has one"
    try:
        hosts = urlsplit(url).netloc.rpartition("@")[2].split(",")
    except ValueError:
        return "has a host that is not a name or an address: correct it, an IPv6 address stands in brackets"
    # The last colon outside of an IPv6 address's brackets starts the port.
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
            return f"holds {network!r}, which is no network: write one such as 10.0.0.0/8"
    return None


def _origins_fault(given: tuple[str, ...]) -> str | None:
    for origin in given:
        if http_url_fault(origin) is not None or urlsplit(origin).path:
            return f"holds {origin!r}, which is no origin: write one such as https://dashboard.example.com"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class DatabaseSettings(Section):
    """The PostgreSQL database that all servers share; it is all the state there is."""

    url: Annotated[
        SecretText,
        Key(
            "Address of the database. `postgres://` and `postgresql+psycopg://` mean the same as `postgresql://`.",
            rule=_database_url_fault,
            example="postgresql://hetuflow:PASSWORD@127.0.0.1:5432/hetuflow",
        ),
    ]
    pool_size: Annotated[
        int,
        Key("Most connections one server opens for requests and loops.", least=2, most=500),
    ] = 10
    connect_timeout: Annotated[
        timedelta,
        Key(
            "How long to wait for a connection; whole seconds, as PostgreSQL's client library counts them.",
            least=timedelta(seconds=2),
            most=timedelta(minutes=5),
            rule=whole_seconds_fault,
        ),
    ] = timedelta(seconds=5)
    statement_timeout: Annotated[
        timedelta,
        Key(
            "PostgreSQL ends a statement that runs longer than this.",
            least=timedelta(seconds=1),
            most=timedelta(hours=1),
        ),
    ] = timedelta(seconds=30)


@dataclass(frozen=True, slots=True, kw_only=True)
class HttpSettings(Section):
    """The address this server listens on, and what it signs with."""

    host: Annotated[
        str,
        Key("Address to listen on; `0.0.0.0` or `::` is every address of the host.", rule=host_fault),
    ] = "127.0.0.1"
    port: Annotated[int, Key("TCP port to listen on; 0 takes any free one.", least=0, most=_HIGHEST_PORT)] = (
        8600
    )
    secret_key: Annotated[
        SecretText,
        Key(
            "Key to encrypt secrets and to sign tokens of people with, the same on all servers. There is no "
            "default: "
            'make one with `python3 -c "import secrets; print(secrets.token_urlsafe(48))"`.',
            min_length=32,
            # Too short to be accepted: taking the template as it is must not give everybody the same key.
            example="CHANGE-ME",
        ),
    ]
    tls_cert: Annotated[
        Path | None,
        Key(
            "Certificate to answer by https with, in PEM form and with those between it and the authority; "
            "SIGHUP has it read again.",
            example=Path("/etc/hetuflow/server.crt"),
        ),
    ] = None
    tls_key: Annotated[
        Path | None,
        Key("Private key of the certificate, in PEM form.", example=Path("/etc/hetuflow/server.key")),
    ] = None
    tls_client_ca: Annotated[
        Path | None,
        Key(
            "Answer only callers that show a certificate of these authorities.",
            example=Path("/etc/hetuflow/clients-ca.crt"),
        ),
    ] = None
    secret_keyring: Annotated[
        Path | None,
        Key(
            "File with further keys, one per line, that secrets may be encrypted with: a former "
            "`secret_key`, or one that is about to be it. See Rotating the key in the guide to secrets.",
            example=Path("/etc/hetuflow/keyring"),
        ),
    ] = None
    advertise_url: Annotated[
        str | None,
        Key(
            "Address under which others reach this server, if it is not the one it listens on.",
            rule=http_url_fault,
            example="https://hetuflow.example.com",
        ),
    ] = None
    weight: Annotated[
        int,
        Key(
            "How many namespaces this server looks after, relative to others; 0: only those pinned to it.",
            least=0,
            most=10_000,
        ),
    ] = 100
    trusted_proxies: Annotated[
        tuple[str, ...],
        Key(
            "Networks of proxies whose X-Forwarded-For header is believed.",
            rule=_networks_fault,
            example=("10.0.0.0/8",),
        ),
    ] = ()
    cors_origins: Annotated[
        tuple[str, ...],
        Key(
            "Origins whose pages may call the REST API from a browser; none unless named. Such pages bring a "
            "key or a token of their own.",
            rule=_origins_fault,
            example=("https://dashboard.example.com",),
        ),
    ] = ()
    stop_timeout: Annotated[
        timedelta,
        Key(
            "How long a stopping server waits for open requests and loops before it ends them.",
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
class LeaderSettings(Section):
    """How servers elect the one that binds namespaces to servers and looks after what they share.

    Give all servers the same values.
    """

    ttl: Annotated[
        timedelta,
        Key(
            "How long leadership lasts without renewal: the longest time without a leader after a crash.",
            least=timedelta(seconds=1),
            most=timedelta(minutes=5),
        ),
    ] = timedelta(seconds=10)
    renew_every: Annotated[
        timedelta,
        Key(
            "How often the leader renews.",
            least=timedelta(milliseconds=100),
            derived=Derived("a quarter of ttl", lambda values, _: values["ttl"] * 0.25),
            example=timedelta(seconds=2.5),
        ),
    ]
    give_up_after: Annotated[
        timedelta,
        Key(
            "A leader that could not renew for this long steps down by itself, before others may take over.",
            least=timedelta(milliseconds=200),
            derived=Derived("0.6 of ttl", lambda values, _: values["ttl"] * 0.6),
            example=timedelta(seconds=6),
        ),
    ]

    heartbeat_every: Annotated[
        timedelta,
        Key(
            "How often each server says that it is there.",
            least=timedelta(milliseconds=100),
            most=timedelta(minutes=1),
        ),
    ] = timedelta(seconds=2)
    dead_after: Annotated[
        timedelta,
        Key(
            "A server not heard of for this long counts as dead, and others look after its namespaces.",
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
            format_duration(one) for one in (self.ttl, self.give_up_after, self.renew_every)
        )
        if self.give_up_after >= self.ttl:
            yield Fault("give_up_after", f"must be shorter than ttl: it is {give_up} and ttl is {ttl}")
        if self.renew_every >= self.give_up_after:
            message = f"must be shorter than give_up_after: it is {renew} and give_up_after is {give_up}"
            yield Fault("renew_every", message)


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentsSettings(Section):
    """Which agents are let in; what one agent does is set in its own `[agent]` section."""

    require_approval: Annotated[
        bool,
        Key("Agents nobody has heard of get no work until `hetuflow agent approve` lets them."),
    ] = False


@dataclass(frozen=True, slots=True, kw_only=True)
class WebhookSettings(Section):
    """Messages to others when tasks end."""

    allow: Annotated[
        tuple[str, ...],
        Key(
            "Networks that messages may go to besides the public internet, such as `10.1.0.0/16`; never open "
            "the network of a cloud's metadata service.",
            rule=_networks_fault,
        ),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionSettings(Section):
    """How long finished things are kept; what has not finished is never removed."""

    tasks: Annotated[
        timedelta,
        Key(
            "How long tasks and their attempts are kept after they have finished, and backfills with them.",
            least=timedelta(hours=1),
            most=timedelta(days=3650),
        ),
    ] = timedelta(days=30)
    logs: Annotated[
        timedelta,
        Key("How long logs of tasks are kept.", least=timedelta(hours=1), most=timedelta(days=3650)),
    ] = timedelta(days=14)
    artifacts: Annotated[
        timedelta,
        Key(
            "How long files that tasks left behind are kept.",
            least=timedelta(hours=1),
            most=timedelta(days=3650),
        ),
    ] = timedelta(days=14)
    events: Annotated[
        timedelta,
        Key(
            "How long events, and their keys, are kept.",
            least=timedelta(hours=1),
            most=timedelta(days=3650),
        ),
    ] = timedelta(days=30)
    audit: Annotated[
        timedelta,
        Key(
            "How long entries of the audit trail are kept; they go by whole days.",
            least=timedelta(days=1),
            most=timedelta(days=3650),
        ),
    ] = timedelta(days=365)
    usage: Annotated[
        timedelta,
        Key(
            "How long it is kept how busy the hosts of agents were, minute by minute.",
            least=timedelta(hours=1),
            most=timedelta(days=365),
        ),
    ] = timedelta(days=7)
    artifact_cap: Annotated[
        int,
        Key(
            "Most MiB of one file that a task leaves behind; of all its files four times that.",
            least=1,
            most=1024,
        ),
    ] = 64
    log_cap: Annotated[
        int,
        Key(
            "Most MiB of one stream of a log; a longer one is cut, a daemon's loses its oldest part.",
            least=1,
            most=1024 * 1024,
        ),
    ] = 64
    partition_ahead: Annotated[
        timedelta,
        Key(
            "How far ahead the daily partitions are created, so that writing goes on when upkeep does not.",
            least=timedelta(days=1),
            most=timedelta(days=60),
        ),
    ] = timedelta(days=7)


_FOREIGN = {"agent": "hetuflow-agent"}


@dataclass(frozen=True, slots=True, kw_only=True)
class ServerSettings(Settings):
    """What `hetuflow server` reads."""

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
    """What commands that only work on the database read: migrating needs no secret key."""

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
