"""The REST calls about the audit trail, and the check of its chain: made here, and not by the server."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from datetime import datetime

from hetuflow_core.audit_chain import START, Break, Link, Seal, walked
from hetuflow_core.client.calls import get, pages
from hetuflow_core.client.exchange import Plan, Stream
from hetuflow_core.resources.audit import AuditChain, AuditEntry
from hetuflow_core.resources.pages import Page

_AT_ONCE = 500
# What the leader calls it when it lets the oldest entries go.
EXPIRY = "expire_audit"


@dataclass(frozen=True, slots=True)
class AuditVerdict:
    """What checking the chain has come to."""

    # Entries that were checked, the first and the last of them.
    checked: int
    first: int
    head: Seal
    # None for a chain that is whole.
    broken: Break | None


@dataclass(slots=True)
class _ChainCheck:
    at: Seal | None = None
    first: int = 0
    checked: int = 0
    # What sealed entries say about where the chain begins.
    attested: set[tuple[int, str]] = field(default_factory=set)
    begins: Seal | None = None
    passed: set[Seal] = field(default_factory=set)


def audit(
    *,
    namespace: str | None = None,
    actor: str | None = None,
    action: str | None = None,
    outcome: str | None = None,
    target: str | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    page_size: int | None = None,
) -> Stream[AuditEntry]:
    """What was done and denied, the newest first; fetched page by page."""
    query = {
        "namespace": namespace,
        "actor": actor,
        "action": action,
        "outcome": outcome,
        "target": target,
        "since": since,
        "until": until,
        "limit": page_size,
    }
    return (yield from pages("/audit", query, Page[AuditEntry]))


def verify_audit(expected: Iterable[Seal] = ()) -> Plan[AuditVerdict]:
    """Read the whole chain and check every link; `expected` are links that were written down elsewhere."""
    known = {one.seq: one for one in expected}
    walk = _ChainCheck()
    while True:
        after = walk.at.seq if walk.at is not None else 0
        page = yield from get("/audit/chain", AuditChain, query={"after": after, "limit": _AT_ONCE})
        head = Seal(page.head_seq, bytes.fromhex(page.head_hash))
        broken = _follow(walk, page, known)
        if broken is not None or not (page.items or page.tombstones):
            return AuditVerdict(walk.checked, walk.first, head, broken or _end(walk, head, known))


def _follow(walk: _ChainCheck, page: AuditChain, known: dict[int, Seal]) -> Break | None:
    links = [one.link() for one in page.items]
    links += [Link(Seal(one.seq, bytes.fromhex(one.hash)), None) for one in page.tombstones]
    links.sort(key=lambda link: link.seal.seq)
    if walk.at is None and links:
        first = links[0]
        if first.content is None:
            walk.begins = first.seal
        walk.at = first.seal if first.content is None else START
        links = links[1:] if first.content is None else links
        walk.first = first.seal.seq
    for link in links:
        reached = walked(walk.at or START, [link])
        if isinstance(reached, Break):
            return reached
        if known.get(reached.seq, reached) != reached:
            return Break(reached.seq, "is not what was written down")
        walk.at = reached
        walk.checked += link.content is not None
    walk.attested |= {
        (one.detail.get("seq", 0), one.detail.get("hash", ""))
        for one in page.items
        if one.action == EXPIRY and one.actor_kind == "system"
    }
    return None


def _end(walk: _ChainCheck, head: Seal, known: dict[int, Seal]) -> Break | None:
    """Whether the chain begins and ends where it should."""
    at = walk.at or START
    begins = walk.begins
    if begins is not None and (begins.seq, begins.hash.hex()) not in walk.attested:
        return Break(begins.seq, "is said to have expired, and no sealed entry says so")
    if at.seq < max([head.seq, *known]):
        return Break(at.seq + 1, "is missing")
    return None if at.seq > head.seq or at == head else Break(at.seq, "is not what the chain ends with")
