"""What operators set about logging in, and about how often one may ask."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from typing import Annotated

from hetuflow_core.access.group_roles import parse_role
from hetuflow_core.errors import Fault
from hetuflow_core.runtime.config.keys import Key, SecretText, Section
from hetuflow_core.runtime.config.rules import http_url_fault


def _roles_fault(roles: Mapping[str, str]) -> str | None:
    for group, meaning in roles.items():
        try:
            parse_role(meaning)
        except ValueError as error:
            return f"has for {group!r} a value that stands for nothing: {error}"
    return None


@dataclass(frozen=True, slots=True, kw_only=True)
class AuthSettings(Section):
    """How people log in, and how often one may ask. Give all servers the same values."""

    token_lifetime: Annotated[
        timedelta,
        Key(
            "How long the access token of somebody who has logged in is good before it must be refreshed.",
            least=timedelta(minutes=1),
            most=timedelta(days=1),
        ),
    ] = timedelta(minutes=15)
    session_lifetime: Annotated[
        timedelta,
        Key(
            "How long somebody stays logged in without refreshing the token.",
            least=timedelta(minutes=5),
            most=timedelta(days=365),
        ),
    ] = timedelta(days=7)
    attempts_per_user: Annotated[
        int,
        Key("How often a minute logging in as one user may fail.", least=1, most=10_000),
    ] = 10
    attempts_per_source: Annotated[
        int,
        Key("How often a minute logging in from one address may fail.", least=1, most=100_000),
    ] = 60
    requests_per_second: Annotated[
        int,
        Key(
            "How many requests a second one key or user may send to one server, twice that at once; a key "
            "may have its own rate. Agents are not counted.",
            least=1,
            most=1_000_000,
        ),
    ] = 2_000
    verifiers: Annotated[
        tuple[str, ...],
        Key(
            "Identity verifiers of installed packages that are asked about credentials of others.",
            example=("acme",),
        ),
    ] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class OidcSettings(Section):
    """An OpenID Connect provider that people may log in through; without an issuer there is none."""

    issuer: Annotated[
        str | None,
        Key(
            "Address of the provider, as its tokens name it.",
            rule=http_url_fault,
            example="https://login.example.com",
        ),
    ] = None
    client_id: Annotated[str | None, Key("Who we are to the provider.", example="hetuflow")] = None
    client_secret: Annotated[
        SecretText | None, Key("What proves it, unless the provider needs no proof.", example="CHANGE-ME")
    ] = None
    redirect_url: Annotated[
        str | None,
        Key(
            "Where the provider sends browsers back to; register it there.",
            rule=http_url_fault,
            example="https://hetuflow.example.com/api/v1/auth/oidc/callback",
        ),
    ] = None
    scopes: Annotated[tuple[str, ...], Key("What is asked for.")] = ("openid", "profile", "email")
    name_claim: Annotated[str, Key("The claim that holds the name of a user.")] = "preferred_username"
    groups_claim: Annotated[str, Key("The claim that holds the list of groups.")] = "groups"
    roles: Annotated[
        Mapping[str, str],
        Key(
            "What groups stand for: a role everywhere, `ROLE@NAMESPACE`, or `agent@NAMESPACE`.",
            rule=_roles_fault,
            example={"staff": "viewer", "team-a": "editor@team-a"},
        ),
    ] = field(default_factory=dict)
    token_audience: Annotated[
        str | None,
        Key(
            "Take tokens that the provider has made for this audience as credentials, of people and agents.",
            example="hetuflow-api",
        ),
    ] = None

    def check(self) -> Iterator[Fault]:
        if self.issuer is not None:
            for name, value in (("client_id", self.client_id), ("redirect_url", self.redirect_url)):
                if value is None:
                    yield Fault(name, "is needed when there is an issuer")
