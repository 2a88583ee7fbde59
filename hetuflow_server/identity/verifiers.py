"""Whoever is known elsewhere: identity verifiers, found through entry points of installed packages.

A verifier is asked about credentials that are neither our keys nor our tokens. It says who holds one and what
that one may do, or that it does not know it. What it says is believed for a second of people and for five of
agents; what it takes to find out is its own business, and its own cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib.metadata import entry_points
from typing import Final, Protocol
from uuid import NAMESPACE_URL, UUID, uuid5

from hetuflow_core.access.permissions import Grant
from hetuflow_core.errors import ConfigInvalid, Unauthenticated
from hetuflow_server.identity.oidc.logins import ClaimNames
from hetuflow_server.identity.oidc.provider import OidcProvider

VERIFIER_GROUP: Final = "hetuflow.identity_verifiers"


@dataclass(frozen=True, slots=True)
class RemoteUser:
    """A person or program that a verifier vouches for."""

    # Unique and lasting, of one verifier.
    subject: str
    name: str
    grants: Sequence[Grant]


@dataclass(frozen=True, slots=True)
class RemoteAgent:
    """An agent that a verifier vouches for."""

    subject: str
    name: str
    namespaces: Sequence[str]


class IdentityVerifier(Protocol):
    # How it is called in logs and in lists of tokens.
    name: str

    async def user(self, credential: str) -> RemoteUser | None:
        """Return who holds a credential, or None if it is not for this verifier to say."""

    async def agent(self, credential: str) -> RemoteAgent | None:
        """Return the agent that holds a credential, or None if it is not for this verifier to say."""


def load_verifiers(names: Sequence[str]) -> list[IdentityVerifier]:
    """Make the verifiers of these names, each from the entry point that a package has declared for it."""
    found = {one.name: one for one in entry_points(group=VERIFIER_GROUP)}
    missing = [name for name in names if name not in found]
    if missing:
        known = ", ".join(sorted(found)) or "none"
        raise ConfigInvalid(
            f"[auth] verifiers names {missing[0]}, which no installed package brings (there are: {known})."
        )
    factories: list[Callable[[], IdentityVerifier]] = [found[name].load() for name in names]
    return [make() for make in factories]


def remote_id(verifier: str, subject: str) -> UUID:
    """Return the id of somebody without a row: always the same for the same one."""
    return uuid5(NAMESPACE_URL, f"hetuflow:{verifier}:{subject}")


class OidcTokens:
    """Tokens of the identity provider itself, sent as they are; what their groups stand for they may do."""

    name = "oidc"

    def __init__(self, provider: OidcProvider, claimed: ClaimNames, audience: str) -> None:
        self._provider = provider
        self._claimed = claimed
        self._audience = audience

    async def user(self, credential: str) -> RemoteUser | None:
        claims = await self._claims(credential)
        grants = self._claimed.roles.grants(self._claimed.groups(claims)) if claims else []
        if not claims or not grants:
            return None
        return RemoteUser(str(claims["sub"]), self._claimed.name(claims), grants)

    async def agent(self, credential: str) -> RemoteAgent | None:
        claims = await self._claims(credential)
        places = self._claimed.roles.agent_namespaces(self._claimed.groups(claims)) if claims else []
        if not claims or not places:
            return None
        return RemoteAgent(str(claims["sub"]), self._claimed.name(claims), places)

    async def _claims(self, credential: str) -> dict[str, object] | None:
        if credential.count(".") != 2:  # noqa: PLR2004 - header, claims, signature
            return None
        try:
            return await self._provider.verify(credential, audience=self._audience)
        except Unauthenticated:
            return None
