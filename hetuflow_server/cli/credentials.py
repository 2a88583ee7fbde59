"""Create keys and tokens through the server or in the database directly."""

from __future__ import annotations

from pathlib import Path

from hetuflow_core.resources.identity import AgentTokenRequest, ApiKeyRequest, NewAgentToken, NewApiKey
from hetuflow_server.cli.bootstrap import DATABASE_OPERATOR, on_server_or_database
from hetuflow_server.cli.invocation import Invocation
from hetuflow_server.identity.keys.agent_tokens import AgentTokens
from hetuflow_server.identity.keys.api_keys import ApiKeys


def create_key(invocation: Invocation, config_path: Path | None, request: ApiKeyRequest) -> NewApiKey:
    return on_server_or_database(
        invocation,
        config_path,
        lambda client: client.create_api_key(
            request.name,
            role=request.role,
            namespace=request.namespace,
            scopes=request.scopes,
            expires_in=request.expires_in,
            requests_per_second=request.requests_per_second,
            owner=request.owner,
        ),
        lambda database, clock: ApiKeys(database, clock).create(DATABASE_OPERATOR, request),
    )


def create_token(
    invocation: Invocation, config_path: Path | None, request: AgentTokenRequest
) -> NewAgentToken:
    return on_server_or_database(
        invocation,
        config_path,
        lambda client: client.create_agent_token(
            request.name, namespaces=request.namespaces, expires_in=request.expires_in
        ),
        lambda database, clock: AgentTokens(database, clock).create(DATABASE_OPERATOR, request),
    )
