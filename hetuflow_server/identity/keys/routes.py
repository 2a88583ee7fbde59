"""`/api-keys` and `/agent-tokens`."""

from __future__ import annotations

from http import HTTPStatus
from typing import Annotated
from uuid import UUID

from litestar import Router, delete, get, post
from litestar.di import NamedDependency
from litestar.params import FromPath, JSONBody, QueryParameter

from hetuflow_core.access.permissions import Permission
from hetuflow_core.errors import Invalid
from hetuflow_core.resources.identity import (
    AgentToken,
    AgentTokenRequest,
    ApiKey,
    ApiKeyRequest,
    NewAgentToken,
    NewApiKey,
    RotateRequest,
)
from hetuflow_core.resources.pages import Page
from hetuflow_server.http.authorization import RouteAccess, needs
from hetuflow_server.http.openapi import problems
from hetuflow_server.http.paging import DEFAULT_LIMIT, TOTAL_CAP, Cursor, Limit, decode_cursor, encode_cursor
from hetuflow_server.identity.keys.agent_tokens import AgentTokens
from hetuflow_server.identity.keys.api_keys import STATES, ApiKeys
from hetuflow_server.identity.keys.api_keys_store import KeyFilter
from hetuflow_server.requests.context import RequestContext

# One's own keys are everybody's business; those of others need a permission that the service asks for.
# Answers that show a key or a token are given once and kept nowhere.
_KNOWN = needs(RouteAccess.KNOWN, kept=False)
_MANAGE_AGENTS = needs(Permission.AGENTS_MANAGE, kept=False)
_FOUND = problems(HTTPStatus.NOT_FOUND)


@get("/api-keys", operation_id="list_api_keys", opt=_KNOWN, responses=problems())
async def list_api_keys(
    context: NamedDependency[RequestContext],
    api_keys: NamedDependency[ApiKeys],
    owner: Annotated[str | None, QueryParameter(description="Those of this user.")] = None,
    key_state: Annotated[str | None, QueryParameter(name="state")] = None,
    limit: Limit = DEFAULT_LIMIT,
    cursor: Cursor = None,
) -> Page[ApiKey]:
    """List API keys, newest first: all with the permission keys.manage, one's own without."""
    if key_state is not None and key_state not in STATES:
        raise Invalid(f"There is no state {key_state[:64]} of keys: use one of {', '.join(STATES)}.")
    found, total = await api_keys.list_keys(
        context,
        KeyFilter(owner=owner, state=key_state),
        before=decode_cursor(cursor, UUID),
        limit=limit,
        cap=TOTAL_CAP,
    )
    more = encode_cursor(found[limit - 1].id) if len(found) > limit else None
    return Page(found[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@post("/api-keys", operation_id="create_api_key", opt=_KNOWN, responses=_FOUND)
async def create_api_key(
    data: JSONBody[ApiKeyRequest],
    context: NamedDependency[RequestContext],
    api_keys: NamedDependency[ApiKeys],
) -> NewApiKey:
    """Make an API key of one's own; only this answer shows it."""
    return await api_keys.create(context, data)


@get("/api-keys/{key_id:uuid}", operation_id="get_api_key", opt=_KNOWN, responses=_FOUND)
async def get_api_key(
    key_id: FromPath[UUID], context: NamedDependency[RequestContext], api_keys: NamedDependency[ApiKeys]
) -> ApiKey:
    """One key, without the key itself."""
    return await api_keys.key(context, key_id)


@delete(
    "/api-keys/{key_id:uuid}", status_code=200, operation_id="revoke_api_key", opt=_KNOWN, responses=_FOUND
)
async def revoke_api_key(
    key_id: FromPath[UUID], context: NamedDependency[RequestContext], api_keys: NamedDependency[ApiKeys]
) -> ApiKey:
    """End an API key; within a second no server takes it any more."""
    return await api_keys.revoke(context, key_id)


@post(
    "/api-keys/{key_id:uuid}/rotate",
    operation_id="rotate_api_key",
    opt=_KNOWN,
    responses=problems(HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT),
)
async def rotate_api_key(
    key_id: FromPath[UUID],
    data: JSONBody[RotateRequest],
    context: NamedDependency[RequestContext],
    api_keys: NamedDependency[ApiKeys],
) -> NewApiKey:
    """Make another key like this one, which ends at once or after `grace`."""
    return await api_keys.rotate(context, key_id, data.grace)


@get("/agent-tokens", operation_id="list_agent_tokens", opt=_MANAGE_AGENTS, responses=problems())
async def list_agent_tokens(
    agent_tokens: NamedDependency[AgentTokens], limit: Limit = DEFAULT_LIMIT, cursor: Cursor = None
) -> Page[AgentToken]:
    """List tokens of agents, newest first."""
    found, total = await agent_tokens.list_tokens(
        before=decode_cursor(cursor, UUID), limit=limit, cap=TOTAL_CAP
    )
    more = encode_cursor(found[limit - 1].id) if len(found) > limit else None
    return Page(found[:limit], more, min(total, TOTAL_CAP), total > TOTAL_CAP)


@post("/agent-tokens", operation_id="create_agent_token", opt=_MANAGE_AGENTS, responses=_FOUND)
async def create_agent_token(
    data: JSONBody[AgentTokenRequest],
    context: NamedDependency[RequestContext],
    agent_tokens: NamedDependency[AgentTokens],
) -> NewAgentToken:
    """Make a token for agents; only this answer shows it."""
    return await agent_tokens.create(context, data)


@get("/agent-tokens/{token_id:uuid}", operation_id="get_agent_token", opt=_MANAGE_AGENTS, responses=_FOUND)
async def get_agent_token(token_id: FromPath[UUID], agent_tokens: NamedDependency[AgentTokens]) -> AgentToken:
    """One token, without the token itself."""
    return await agent_tokens.token(token_id)


@delete(
    "/agent-tokens/{token_id:uuid}",
    status_code=200,
    operation_id="revoke_agent_token",
    opt=_MANAGE_AGENTS,
    responses=_FOUND,
)
async def revoke_agent_token(
    token_id: FromPath[UUID],
    context: NamedDependency[RequestContext],
    agent_tokens: NamedDependency[AgentTokens],
) -> AgentToken:
    """End a token of agents; within five seconds no server takes it any more."""
    return await agent_tokens.revoke(context, token_id)


api_keys_router = Router(
    "/api/v1",
    route_handlers=[
        *(list_api_keys, create_api_key, get_api_key, revoke_api_key, rotate_api_key),
        *(list_agent_tokens, create_agent_token, get_agent_token, revoke_agent_token),
    ],
    tags=["keys"],
)
