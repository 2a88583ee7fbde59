"""The audit trail in the REST API."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.audit_chain import Link, Seal


class AuditEntry(msgspec.Struct, frozen=True):
    """A change, or a denied request. `before` and `after` are digests of the object's state."""

    id: UUID
    at: datetime
    # `user`, `key`, `remote` or `system`; `unknown` for a caller without a valid credential.
    actor_kind: str
    actor_id: UUID | None
    actor: str
    # The caller's address.
    source: str | None
    # The operation id of the API, such as `set_secret`.
    action: str
    # `done` or `denied`.
    outcome: str
    target_kind: str | None
    target: str | None
    namespace: str | None
    before: str | None
    after: str | None
    request_id: str | None
    detail: dict[str, Any]
    # Position in the chain and its hash; None for about a second until the entry is sealed.
    seq: int | None
    hash: str | None

    def link(self) -> Link:
        """Return the entry as a link of the chain; raise ValueError if it is not sealed yet."""
        if self.seq is None or self.hash is None:
            raise ValueError("this entry is not sealed yet")
        return Link(Seal(self.seq, bytes.fromhex(self.hash)), content_of(self))


class AuditTombstone(msgspec.Struct, frozen=True):
    """The seal of an expired entry, which the chain still needs."""

    seq: int
    hash: str


class AuditChain(msgspec.Struct, frozen=True):
    """A section of the chain, and the head of the chain."""

    items: list[AuditEntry]
    # Seals of expired entries in the section; the first one is the current beginning of the chain.
    tombstones: list[AuditTombstone]
    # The last sealed entry.
    head_seq: int
    head_hash: str


def content_of(entry: AuditEntry) -> dict[str, Any]:
    """Return the sealed content of an entry: all fields except the seal."""
    content: dict[str, Any] = msgspec.structs.asdict(entry)
    del content["seq"], content["hash"]
    return content
