"""Users, API keys, agent tokens and logins in the REST API."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from hetuflow_core.access.roles import Role


class UserGrant(msgspec.Struct, frozen=True):
    """A role in one namespace or in all, with additional and withheld permissions."""

    role: Role
    namespace: str | None = None
    also: list[str] = []
    without: list[str] = []
    # `local`, or `provider`: assigned by an identity provider at every login.
    origin: str = "local"


class User(msgspec.Struct, frozen=True):
    id: UUID
    name: str
    display_name: str | None
    has_password: bool
    # The identity provider of the user, and the user's id there.
    issuer: str | None
    subject: str | None
    disabled: bool
    created_at: datetime
    updated_at: datetime
    last_login_at: datetime | None
    grants: list[UserGrant]


class UserRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /users`; a user without a password can only log in through an identity provider."""

    name: str
    password: str | None = None
    display_name: str | None = None
    # A first grant, in `namespace` or in all.
    role: Role | None = None
    namespace: str | None = None


class UserChange(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`PATCH /users/{user}`."""

    display_name: str | None


class PasswordRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /users/{user}/password`; null removes the password."""

    password: str | None


class GrantRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /users/{user}/grant`: replaces the previous grant of the same namespace."""

    role: Role
    # All namespaces if omitted.
    namespace: str | None = None
    also: list[str] = []
    without: list[str] = []


class RevokeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /users/{user}/revoke`: removes the grant of a namespace, or the grant for all namespaces."""

    namespace: str | None = None


class ApiKey(msgspec.Struct, frozen=True):
    id: UUID
    # The first characters of the key, to identify it.
    prefix: str
    name: str
    role: Role
    # None: every namespace.
    namespace: str | None
    # None: all permissions of the role.
    scopes: list[str] | None
    # The user of the key; the key never has more permissions than the user.
    owner: str | None
    requests_per_second: int | None
    # valid, expired or revoked.
    state: str
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewApiKey(ApiKey, frozen=True, kw_only=True):
    # Returned only once.
    key: str


class ApiKeyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /api-keys`."""

    name: str
    role: Role = Role.VIEWER
    namespace: str | None = None
    # Restricts the key to these permissions of its role.
    scopes: list[str] | None = None
    # A duration such as 12h or 90d; the key never expires if omitted.
    expires_in: str | None = None
    requests_per_second: int | None = None
    # Another user than the caller; requires the permission keys.manage.
    owner: str | None = None


class RotateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /api-keys/{key_id}/rotate`: how long the old key stays valid."""

    grace: str = "0s"


class AgentToken(msgspec.Struct, frozen=True):
    id: UUID
    prefix: str
    name: str
    # Namespaces that its agents may serve.
    namespaces: list[str]
    # Number of agents registered with the token.
    agents: int
    state: str
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    # Last contact of any of these agents.
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewAgentToken(AgentToken, frozen=True, kw_only=True):
    # Returned only once.
    token: str


class AgentTokenRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /agent-tokens`."""

    name: str
    namespaces: list[str] = msgspec.field(default_factory=lambda: ["default"])
    expires_in: str | None = None


class LoginRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /auth/login`."""

    name: str
    password: str


class RefreshRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /auth/refresh`; a refresh token can be used once."""

    refresh_token: str


class OidcCodeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /auth/oidc/token`: the authorization code and the PKCE verifier."""

    code: str
    verifier: str


class OwnPasswordRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /auth/password`."""

    current_password: str
    password: str


class LoginAnswer(msgspec.Struct, frozen=True):
    """The response to a login or refresh."""

    user: str
    access_token: str
    # Seconds until the access token expires.
    expires_in: int
    refresh_token: str
    token_type: str = "Bearer"  # noqa: S105 - a word of the protocol


class Session(msgspec.Struct, frozen=True):
    """A login session."""

    id: UUID
    user: str
    # The address the login came from.
    source: str | None
    created_at: datetime
    # When the tokens were last refreshed, and until when they can be.
    refreshed_at: datetime
    expires_at: datetime
    # The session of this request.
    current: bool = False


class NamespaceRights(msgspec.Struct, frozen=True):
    # None: every other namespace.
    namespace: str | None
    permissions: list[str]


class Me(msgspec.Struct, frozen=True):
    """`GET /auth/me`: the caller and its permissions per namespace."""

    id: UUID
    # user, key or remote.
    kind: str
    name: str
    source: str | None
    rights: list[NamespaceRights]
