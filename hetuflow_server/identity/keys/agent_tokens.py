"""Tokens of agents: which namespaces they may take work from, and until when."""

from __future__ import annotations

from uuid import UUID

import msgspec

from hetuflow_core.errors import Fault, Invalid, NotFound
from hetuflow_core.resources.identity import AgentToken, AgentTokenRequest, NewAgentToken
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.identity import access_store
from hetuflow_server.identity.credentials import AGENT_TOKEN_MARK, make_credential
from hetuflow_server.identity.keys import agent_tokens_store as store
from hetuflow_server.identity.keys.api_keys import check_name, lifetime
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.context import RequestContext


class AgentTokens:
    def __init__(self, database: Database, clock: Clock) -> None:
        self._database = database
        self._clock = clock

    async def list_tokens(self, *, before: UUID | None, limit: int, cap: int) -> tuple[list[AgentToken], int]:
        """Return one more than `limit` when there are more, and the total up to just over the cap."""
        async with self._database.transaction() as connection:
            found = await store.listed(connection, before=before, limit=limit + 1)
            return found, await store.count(connection, cap + 1)

    async def token(self, token_id: UUID) -> AgentToken:
        async with self._database.transaction() as connection:
            return await _find(connection, token_id)

    async def create(self, context: RequestContext, asked: AgentTokenRequest) -> NewAgentToken:
        """Make a token; the answer is the only one that shows it."""
        life = lifetime(asked.expires_in)
        check_name(asked.name)
        if not asked.namespaces:
            fault = "must name the namespaces its agents may take work from"
            raise Invalid(f"namespaces {fault}.", faults=[Fault("namespaces", fault)])
        made = make_credential(AGENT_TOKEN_MARK, self._clock)
        async with self._database.transaction(context) as connection:
            found = await access_store.namespace_ids(connection, asked.namespaces)
            await store.insert(
                connection,
                id_=made.id,
                prefix=made.prefix,
                digest=made.digest,
                name=asked.name,
                namespace_ids=list(found.values()),
                expires_at=self._clock.now() + life if life else None,
                created_by=context.principal.name,
            )
            shown = await _find(connection, made.id)
            context.audit.note_change("agent_token", made.id, after=msgspec.to_builtins(shown))
        return NewAgentToken(**msgspec.structs.asdict(shown), token=made.credential)

    async def revoke(self, context: RequestContext, token_id: UUID) -> AgentToken:
        """End a token: its agents get nothing any more, and what they run keeps its lease until it ends."""
        async with self._database.transaction(context) as connection:
            before = await _find(connection, token_id)
            if not await store.revoke(connection, token_id):
                raise _no_token()
            after = await _find(connection, token_id)
            context.audit.note_change(
                "agent_token", token_id, before=msgspec.to_builtins(before), after=msgspec.to_builtins(after)
            )
            return after


async def _find(connection: Connection, token_id: UUID) -> AgentToken:
    found = await store.by_id(connection, token_id)
    if found is None:
        raise _no_token()
    return found


def _no_token() -> NotFound:
    return NotFound("There is no such agent token.", code="agent_token.not_found")
