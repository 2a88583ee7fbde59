"""The audit trail as the REST API shows it."""

from __future__ import annotations

from datetime import datetime
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core.audit_chain import Link, Seal


class AuditEntry(msgspec.Struct, frozen=True):
    """Something that was done, or refused. Digests tell two states of a thing apart, not what they were."""

    id: UUID
    at: datetime
    # `user`, `key`, `remote` or `system`; and `unknown` for whoever had no good credential.
    actor_kind: str
    actor_id: UUID | None
    actor: str
    # The address it came from.
    source: str | None
    # What was asked for, as the API calls it, such as `set_secret`.
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
    # Its place in the chain, and the hash that seals it; None for a second or so after it was written.
    seq: int | None
    hash: str | None

    def link(self) -> Link:
        """Its place in the chain, to be checked; raise ValueError while it is not sealed."""
        if self.seq is None or self.hash is None:
            raise ValueError("this entry is not sealed yet")
        return Link(Seal(self.seq, bytes.fromhex(self.hash)), content_of(self))


class AuditTombstone(msgspec.Struct, frozen=True):
    """What is left of an expired entry that the chain needs."""

    seq: int
    hash: str


class AuditChain(msgspec.Struct, frozen=True):
    """A stretch of the chain, and where it ends."""

    items: list[AuditEntry]
    # Of expired entries within the stretch; the first is where the chain begins now.
    tombstones: list[AuditTombstone]
    # The last link that was sealed.
    head_seq: int
    head_hash: str


def content_of(entry: AuditEntry) -> dict[str, Any]:
    """What of an entry is sealed: everything but the seal."""
    content: dict[str, Any] = msgspec.structs.asdict(entry)
    del content["seq"], content["hash"]
    return content
