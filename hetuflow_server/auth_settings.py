"""Settings of login and rate limits."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated

from hetuflow_core.access.group_roles import parse_role
from hetuflow_core.errors import Fault
from hetuflow_core.runtime.config.keys import SecretText, Setting, SettingsSection
from hetuflow_core.runtime.config.rules import http_url_fault


def _roles_fault(roles: Mapping[str, str]) -> str | None:
    for group, meaning in roles.items():
        try:
            parse_role(meaning)
        except ValueError as error:
            return f"has an invalid value for {group!r}: {error}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings(SettingsSection):
    """Login and rate limits. Use the same values on all servers."""

    token_lifetime: Annotated[
        timedelta,
        Setting(
            "How long an access token is valid before it must be refreshed.",
            least=timedelta(minutes=1),
            most=timedelta(days=1),
        ),
    ] = timedelta(minutes=15)
    session_lifetime: Annotated[
        timedelta,
        Setting(
            "How long a login session lasts without a refresh of its token.",
            least=timedelta(minutes=5),
            most=timedelta(days=365),
        ),
    ] = timedelta(days=7)
    attempts_per_user: Annotated[
        int,
        Setting("Maximum number of failed logins per minute and user.", least=1, most=10_000),
    ] = 10
    attempts_per_source: Annotated[
        int,
        Setting("Maximum number of failed logins per minute and source address.", least=1, most=100_000),
    ] = 60
    requests_per_second: Annotated[
        int,
        Setting(
            "Maximum number of requests per second from one key or user to one server, with bursts of "
            "twice as many. "
            "A key can have a different rate. Agents are not limited.",
            least=1,
            most=1_000_000,
        ),
    ] = 2_000
    verifiers: Annotated[
        tuple[str, ...],
        Setting(
            "Identity verifiers of installed packages, which check credentials that Hetuflow did not issue.",
            example=("acme",),
        ),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings(SettingsSection):
    """Login through an OpenID Connect provider; disabled without an issuer."""

    issuer: Annotated[
        str | None,
        Setting(
            "Address of the provider, equal to the issuer in its tokens.",
            rule=http_url_fault,
            example="https://login.example.com",
        ),
    ] = None
    client_id: Annotated[
        str | None, Setting("Client id of Hetuflow at the provider.", example="hetuflow")
    ] = None
    client_secret: Annotated[
        SecretText | None, Setting("Client secret, if the provider requires one.", example="CHANGE-ME")
    ] = None
    redirect_url: Annotated[
        str | None,
        Setting(
            "Address to which the provider redirects browsers; register it at the provider.",
            rule=http_url_fault,
            example="https://hetuflow.example.com/api/v1/auth/oidc/callback",
        ),
    ] = None
    scopes: Annotated[tuple[str, ...], Setting("Requested scopes.")] = ("openid", "profile", "email")
    name_claim: Annotated[str, Setting("Claim that contains the user name.")] = "preferred_username"
    groups_claim: Annotated[str, Setting("Claim that contains the list of groups.")] = "groups"
    roles: Annotated[
        Mapping[str, str],
        Setting(
            "Role of each group: `ROLE` for all namespaces, `ROLE@NAMESPACE`, or `agent@NAMESPACE`.",
            rule=_roles_fault,
            example={"staff": "viewer", "team-a": "editor@team-a"},
        ),
    ] = field(default_factory=dict)
    token_audience: Annotated[
        str | None,
        Setting(
            "Accept tokens of the provider for this audience as credentials of users and agents.",
            example="hetuflow-api",
        ),
    ] = None

    def check(self) -> Iterator[Fault]:
        if self.issuer is not None:
            for name, value in (("client_id", self.client_id), ("redirect_url", self.redirect_url)):
                if value is None:
                    yield Fault(name, "is required with issuer")
