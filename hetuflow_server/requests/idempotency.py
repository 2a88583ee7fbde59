"""Requests with an idempotency key: executed once, and answered as often as they are sent.

Everything such a request does is one transaction, which also stores the response: a crash leaves both or
neither. A request that fails leaves nothing, so it may be sent again with the same key.
"""

from __future__ import annotations

import hmac
from collections.abc import Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

from hetuflow_core.errors import Invalid, Underway
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests import idempotency_store as store
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.idempotency_store import KeptAnswer

LONGEST_KEY: Final = 255
# Most requests take less than this time: a client may try again after it.
_RETRY_AFTER_SECONDS: Final = 1


@dataclass(frozen=True, slots=True)
class KeyedRequest:
    key: str
    # Method, address and body: equal parts identify the same request.
    parts: Sequence[bytes]


class _Abandoned(Exception):
    """Rolls back a transaction without an error."""


class IdempotentRequest:
    """A request in progress whose response is going to be stored."""

    def __init__(self, context: RequestContext, request: KeyedRequest, digest: bytes) -> None:
        self._context = context
        self._request = request
        self._digest = digest
        self._open = AsyncExitStack()
        self._connection: Connection | None = None

    async def begin(self, database: Database, digests: Sequence[bytes]) -> KeptAnswer | None:
        """Open the transaction of the whole request, or return the response stored by an earlier one."""
        try:
            self._connection = await self._open.enter_async_context(self._context.enclosed(database))
            kept = await self._take(self._connection)
            if kept is not None:
                self._check(kept, digests)
                await self.abandon()
        except BaseException:
            await self.abandon()
            raise
        return kept

    async def _take(self, connection: Connection) -> KeptAnswer | None:
        if not await store.take_key(connection, self._context.principal.id, self._request.key):
            raise Underway(
                f"A request with the idempotency key {self._request.key} is being answered: "
                "ask again in a moment.",
                code="idempotency_key.in_flight",
                retry_after=_RETRY_AFTER_SECONDS,
            )
        return await store.recall(connection, self._context.principal.id, self._request.key)

    async def keep(self, status: int, headers: Sequence[tuple[str, str]], body: bytes) -> None:
        """Store the response, and commit everything."""
        if self._connection is None:
            raise RuntimeError("this request has not begun")
        enclosing, changes = self._context.enclosing, self._context.audit.changes
        undone = enclosing is not None and enclosing.part_rolled_back and not changes
        done = not undone and await store.has_written(self._connection)
        namespaces = sorted({change.namespace for change in changes if change.namespace is not None})
        answer = KeptAnswer(self._digest, namespaces, status, headers, body)
        try:
            await store.keep(self._connection, self._context.principal.id, self._request.key, answer)
        except BaseException:
            await self.abandon()
            raise
        if not done:
            # Storing a response is not a change.
            self._context.write_no_entries()
        await self._open.aclose()

    async def abandon(self) -> None:
        """Roll everything back; harmless after the end."""
        error = _Abandoned()
        await self._open.__aexit__(type(error), error, None)
        self._context.audit.changes.clear()

    def _check(self, kept: KeptAnswer, digests: Sequence[bytes]) -> None:
        if not any(hmac.compare_digest(kept.digest, digest) for digest in digests):
            raise Invalid(
                f"The idempotency key {self._request.key} was used for another request: "
                "use a new key for a new request.",
                code="idempotency_key.reused",
            )
        for namespace in kept.namespaces:
            self._context.require_namespace(namespace)


class IdempotentRequests:
    def __init__(self, database: Database, server_keys: Sequence[str]) -> None:
        self._database = database
        # New digests use the first key; the others recognise digests made with former keys.
        self._keys = [sha256(b"hetuflow idempotency " + key.encode()).digest() for key in server_keys]

    async def begin(self, context: RequestContext, request: KeyedRequest) -> IdempotentRequest | KeptAnswer:
        """Return the request as one in progress, or the response stored by an earlier one."""
        if not (1 <= len(request.key) <= LONGEST_KEY and request.key.isprintable()):
            raise Invalid(
                f"An idempotency key has 1 to {LONGEST_KEY} printable characters.",
                code="idempotency_key.invalid",
            )
        digests = [_digest(key, request.parts) for key in self._keys]
        idempotent_request = IdempotentRequest(context, request, digests[0])
        return await idempotent_request.begin(self._database, digests) or idempotent_request


def _digest(key: bytes, parts: Sequence[bytes]) -> bytes:
    framed = b"".join(len(part).to_bytes(8, "big") + part for part in parts)
    return hmac.new(key, framed, sha256).digest()
