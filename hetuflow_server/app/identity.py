"""The identity provider and the verifiers of a server, built from its settings."""

from __future__ import annotations

from hetuflow_core.access.group_roles import GroupRoles
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.identity.oidc.logins import ClaimNames
from hetuflow_server.identity.oidc.provider import Client, OidcProvider
from hetuflow_server.identity.verifiers import IdentityVerifier, OidcTokens, load_verifiers
from hetuflow_server.settings import ServerSettings


class Identity:
    def __init__(self, settings: ServerSettings, clock: Clock) -> None:
        oidc = settings.oidc
        self.claimed = ClaimNames(oidc.name_claim, oidc.groups_claim, GroupRoles(oidc.roles))
        self.provider: OidcProvider | None = None
        self.verifiers: list[IdentityVerifier] = load_verifiers(settings.auth.verifiers)
        if oidc.issuer is not None:
            secret = oidc.client_secret.reveal() if oidc.client_secret else None
            client = Client(oidc.issuer, oidc.client_id or "", secret, oidc.redirect_url or "", oidc.scopes)
            self.provider = OidcProvider(client, clock)
            if oidc.token_audience is not None:
                self.verifiers.append(OidcTokens(self.provider, self.claimed, oidc.token_audience))
