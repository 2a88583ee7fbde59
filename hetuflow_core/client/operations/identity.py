"""The REST calls about users, API keys and tokens of agents."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

import msgspec

from hetuflow_core.access.roles import Role
from hetuflow_core.client.calls import get, pages, post, segment, send
from hetuflow_core.client.exchange import Plan, Request, Stream
from hetuflow_core.client.retry import answered
from hetuflow_core.resources.identity import (
    AgentToken,
    AgentTokenRequest,
    ApiKey,
    ApiKeyRequest,
    GrantRequest,
    LoginAnswer,
    LoginRequest,
    Me,
    NewAgentToken,
    NewApiKey,
    OidcCodeRequest,
    OwnPasswordRequest,
    PasswordRequest,
    RefreshRequest,
    RevokeRequest,
    RotateRequest,
    Session,
    User,
    UserChange,
    UserRequest,
)
from hetuflow_core.resources.pages import Page


def users(*, page_size: int | None = None) -> Stream[User]:
    """Users by name, fetched page by page."""
    return (yield from pages("/users", {"limit": page_size}, Page[User]))


def user(name: str) -> Plan[User]:
    return (yield from get(_user_path(name), User))


def create_user(
    name: str,
    *,
    password: str | None = None,
    display_name: str | None = None,
    role: Role | str | None = None,
    namespace: str | None = None,
) -> Plan[User]:
    """Make a user, with a role in a namespace or in all; `Conflict` if there is one of this name."""
    given = None if role is None else Role(role)
    return (yield from post("/users", UserRequest(name, password, display_name, given, namespace), User))


def set_password(name: str, password: str | None) -> Plan[User]:
    """Give a user another password, or none."""
    request = PasswordRequest(password)
    return (yield from post(f"{_user_path(name)}/password", request, User, repeatable=True))


def change_user(name: str, *, display_name: str | None) -> Plan[User]:
    """Set how people call a user; None takes it away."""
    return (yield from send("PATCH", _user_path(name), User, UserChange(display_name), repeatable=True))


def disable_user(name: str) -> Plan[User]:
    return (yield from post(f"{_user_path(name)}/disable", None, User, repeatable=True))


def enable_user(name: str) -> Plan[User]:
    return (yield from post(f"{_user_path(name)}/enable", None, User, repeatable=True))


def delete_user(name: str) -> Plan[None]:
    yield from answered(Request("DELETE", _user_path(name), repeatable=True))


def grant(
    name: str,
    role: Role | str,
    *,
    namespace: str | None = None,
    also: Sequence[str] = (),
    without: Sequence[str] = (),
) -> Plan[User]:
    """Grant a role in a namespace or in all, in place of what was granted there before."""
    request = GrantRequest(Role(role), namespace, list(also), list(without))
    return (yield from post(f"{_user_path(name)}/grant", request, User, repeatable=True))


def revoke(name: str, *, namespace: str | None = None) -> Plan[User]:
    """Take back what was granted in a namespace, or in all."""
    return (yield from post(f"{_user_path(name)}/revoke", RevokeRequest(namespace), User))


def api_keys(
    *, owner: str | None = None, state: str | None = None, page_size: int | None = None
) -> Stream[ApiKey]:
    """API keys, newest first, fetched page by page."""
    query = {"owner": owner, "state": state, "limit": page_size}
    return (yield from pages("/api-keys", query, Page[ApiKey]))


def api_key(key_id: UUID | str) -> Plan[ApiKey]:
    return (yield from get(f"/api-keys/{segment(key_id)}", ApiKey))


def create_api_key(
    name: str,
    *,
    role: Role | str = Role.VIEWER,
    namespace: str | None = None,
    scopes: Sequence[str] | None = None,
    expires_in: str | None = None,
    requests_per_second: int | None = None,
    owner: str | None = None,
) -> Plan[NewApiKey]:
    """Make an API key; its `key` is shown this once."""
    request = ApiKeyRequest(
        name,
        Role(role),
        namespace,
        None if scopes is None else list(scopes),
        expires_in,
        requests_per_second,
        owner,
    )
    return (yield from post("/api-keys", request, NewApiKey))


def revoke_api_key(key_id: UUID | str) -> Plan[ApiKey]:
    return (yield from send("DELETE", f"/api-keys/{segment(key_id)}", ApiKey, repeatable=True))


def rotate_api_key(key_id: UUID | str, *, grace: str = "0s") -> Plan[NewApiKey]:
    """Make another key like this one, which is good for `grace` longer."""
    return (yield from post(f"/api-keys/{segment(key_id)}/rotate", RotateRequest(grace), NewApiKey))


def agent_tokens(*, page_size: int | None = None) -> Stream[AgentToken]:
    """Tokens of agents, newest first, fetched page by page."""
    return (yield from pages("/agent-tokens", {"limit": page_size}, Page[AgentToken]))


def agent_token(token_id: UUID | str) -> Plan[AgentToken]:
    return (yield from get(f"/agent-tokens/{segment(token_id)}", AgentToken))


def create_agent_token(
    name: str, *, namespaces: Sequence[str] = ("default",), expires_in: str | None = None
) -> Plan[NewAgentToken]:
    """Make a token for agents; its `token` is shown this once."""
    request = AgentTokenRequest(name, list(namespaces), expires_in)
    return (yield from post("/agent-tokens", request, NewAgentToken))


def revoke_agent_token(token_id: UUID | str) -> Plan[AgentToken]:
    return (yield from send("DELETE", f"/agent-tokens/{segment(token_id)}", AgentToken, repeatable=True))


def login(name: str, password: str) -> Plan[LoginAnswer]:
    """Log in; the access token is then used as the key of another client."""
    return (yield from post("/auth/login", LoginRequest(name, password), LoginAnswer))


def refresh(refresh_token: str) -> Plan[LoginAnswer]:
    """Give new tokens for a refresh token, which is good once."""
    return (yield from post("/auth/refresh", RefreshRequest(refresh_token), LoginAnswer))


def exchange_oidc_code(code: str, verifier: str) -> Plan[LoginAnswer]:
    """Give tokens for the code of a login that was begun in a browser."""
    return (yield from post("/auth/oidc/token", OidcCodeRequest(code, verifier), LoginAnswer))


def logout() -> Plan[None]:
    """End the session that the client's token is of."""
    yield from answered(Request("POST", "/auth/logout"))


def sessions(user: str | None = None, *, page_size: int | None = None) -> Stream[Session]:
    """Where one is logged in, newest first; or where another user is, which needs users.manage."""
    return (yield from pages("/auth/sessions", {"user": user, "limit": page_size}, Page[Session]))


def end_session(session_id: UUID | str) -> Plan[None]:
    """End a session of one's own, or anybody's with users.manage."""
    yield from answered(Request("DELETE", f"/auth/sessions/{segment(session_id)}"))


def change_password(current_password: str, password: str) -> Plan[None]:
    """Change one's own password; one's other sessions end."""
    body = msgspec.json.encode(OwnPasswordRequest(current_password, password))
    yield from answered(Request("POST", "/auth/password", (), body))


def who_am_i() -> Plan[Me]:
    """Who asks, and what it may do where."""
    return (yield from get("/auth/me", Me))


def _user_path(name: str) -> str:
    return f"/users/{segment(name)}"
