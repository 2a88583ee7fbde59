"""What the REST API says and takes of users, keys and tokens; the names are those of its JSON."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec

from hetuflow_core.access.roles import Role


class UserGrant(msgspec.Struct, frozen=True):
    """A role in one namespace, or in all, with what is added to it and withheld from it."""

    role: Role
    namespace: str | None = None
    also: list[str] = []
    without: list[str] = []
    # local, or provider: given by an identity provider, anew at every login.
    origin: str = "local"


class User(msgspec.Struct, frozen=True):
    id: UUID
    name: str
    display_name: str | None
    has_password: bool
    # The identity provider that vouches for it, and its name there.
    issuer: str | None
    subject: str | None
    disabled: bool
    created_at: datetime
    updated_at: datetime
    last_login_at: datetime | None
    grants: list[UserGrant]


class UserRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /users`; without a password only an identity provider lets it in."""

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
    """`POST /users/{user}/password`; null takes the password away."""

    password: str | None


class GrantRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /users/{user}/grant`: takes the place of what was granted there before."""

    role: Role
    # All if not given.
    namespace: str | None = None
    also: list[str] = []
    without: list[str] = []


class RevokeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /users/{user}/revoke`: takes back what was granted in a namespace, or in all."""

    namespace: str | None = None


class ApiKey(msgspec.Struct, frozen=True):
    id: UUID
    # The beginning of the key, enough to recognise it.
    prefix: str
    name: str
    role: Role
    # None: every namespace.
    namespace: str | None
    # None: all that the role holds.
    scopes: list[str] | None
    # The user it belongs to, and never exceeds.
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
    # Shown this once.
    key: str


class ApiKeyRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /api-keys`."""

    name: str
    role: Role = Role.VIEWER
    namespace: str | None = None
    # Permissions; the key has those of its role that are named here.
    scopes: list[str] | None = None
    # As in 12h or 90d; never if not given.
    expires_in: str | None = None
    requests_per_second: int | None = None
    # Another user than oneself; needs the permission keys.manage.
    owner: str | None = None


class RotateRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /api-keys/{key_id}/rotate`: how much longer the old key is good."""

    grace: str = "0s"


class AgentToken(msgspec.Struct, frozen=True):
    id: UUID
    prefix: str
    name: str
    # Those its agents may take work from.
    namespaces: list[str]
    # How many agents have registered with it.
    agents: int
    state: str
    created_at: datetime
    created_by: str | None
    expires_at: datetime | None
    # When the last of them was heard of.
    last_used_at: datetime | None
    revoked_at: datetime | None


class NewAgentToken(AgentToken, frozen=True, kw_only=True):
    # Shown this once.
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
    """`POST /auth/refresh`; a refresh token is good once."""

    refresh_token: str


class OidcCodeRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /auth/oidc/token`: the code that came through the browser, and what its challenge was made of."""

    code: str
    verifier: str


class OwnPasswordRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """`POST /auth/password`."""

    current_password: str
    password: str


class LoginAnswer(msgspec.Struct, frozen=True):
    """What logging in and refreshing are answered with."""

    user: str
    access_token: str
    # Seconds until it is good no more.
    expires_in: int
    refresh_token: str
    token_type: str = "Bearer"  # noqa: S105 - a word of the protocol


class Session(msgspec.Struct, frozen=True):
    """Somebody who is logged in."""

    id: UUID
    user: str
    # The address the login came from.
    source: str | None
    created_at: datetime
    # When its tokens were last given anew, and until when they can be.
    refreshed_at: datetime
    expires_at: datetime
    # The one that asks.
    current: bool = False


class NamespaceRights(msgspec.Struct, frozen=True):
    # None: every other namespace.
    namespace: str | None
    permissions: list[str]


class Me(msgspec.Struct, frozen=True):
    """`GET /auth/me`: who asks, and what it may do where."""

    id: UUID
    # user, key or remote.
    kind: str
    name: str
    source: str | None
    rights: list[NamespaceRights]
