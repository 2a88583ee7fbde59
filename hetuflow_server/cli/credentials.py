"""Making keys and tokens, by the server or on the database; loaded only when one is made."""

from __future__ import annotations

from pathlib import Path

from hetuflow_core.resources.identity import AgentTokenRequest, ApiKeyRequest, NewAgentToken, NewApiKey
from hetuflow_server.cli.bootstrap import OPERATOR_OF_THE_DATABASE, on_server_or_database
from hetuflow_server.cli.invocation import Invocation
from hetuflow_server.identity.keys.agent_tokens import AgentTokens
from hetuflow_server.identity.keys.api_keys import ApiKeys


def create_key(invocation: Invocation, config_path: Path | None, asked: ApiKeyRequest) -> NewApiKey:
    return on_server_or_database(
        invocation,
        config_path,
        lambda client: client.create_api_key(
            asked.name,
            role=asked.role,
            namespace=asked.namespace,
            scopes=asked.scopes,
            expires_in=asked.expires_in,
            requests_per_second=asked.requests_per_second,
            owner=asked.owner,
        ),
        lambda database, clock: ApiKeys(database, clock).create(OPERATOR_OF_THE_DATABASE, asked),
    )


def create_token(invocation: Invocation, config_path: Path | None, asked: AgentTokenRequest) -> NewAgentToken:
    return on_server_or_database(
        invocation,
        config_path,
        lambda client: client.create_agent_token(
            asked.name, namespaces=asked.namespaces, expires_in=asked.expires_in
        ),
        lambda database, clock: AgentTokens(database, clock).create(OPERATOR_OF_THE_DATABASE, asked),
    )
