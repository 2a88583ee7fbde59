"""What a request is about to do, so that the transaction that does it writes it down.

A deed is opened around every request of people and keys and filled in as they become known. Whatever
transaction of a mutating request has written something gets an entry of the audit trail before it commits,
whether or not anybody thought of it; services add what they know of the things they change.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any
from uuid import UUID

from hetuflow_core.audit_chain import digest_of
from hetuflow_server.postgres.idempotent_transaction import IdempotentTransaction


@dataclass(frozen=True, slots=True)
class AuditedChange:
    """One thing that is changed: what it is, and digests of what it was and is."""

    kind: str
    target: str
    namespace: str | None = None
    before: bytes | None = None
    after: bytes | None = None


@dataclass(slots=True)
class AuditContext:
    # When the request came.
    at: datetime
    source: str | None
    request_id: str | None
    # Whether it is meant to change something: reading writes no entry.
    mutates: bool
    # As the API calls it; the path until the route is known.
    action: str
    target: str
    actor_kind: str = "unknown"
    actor_id: UUID | None = None
    actor: str = ""
    namespace: str | None = None
    changes: list[AuditedChange] = field(default_factory=list)
    detail: dict[str, Any] = field(default_factory=dict)
    # The transaction that all of it is done in, if it is to be kept together with its answer.
    envelope: IdempotentTransaction | None = None
    # It was asked for something of a namespace that does not exist for whoever asks.
    hidden: bool = False
    task: asyncio.Task[Any] | None = field(default_factory=asyncio.current_task)


_CURRENT: ContextVar[AuditContext | None] = ContextVar("deed", default=None)


def current_deed() -> AuditContext | None:
    """The deed of the request whose task this is.

    A task that a request leaves behind has the request's context, and goes on to do things of its own.
    """
    audit_context = _CURRENT.get()
    return (
        audit_context if audit_context is not None and audit_context.task is asyncio.current_task() else None
    )


@contextmanager
def opened(audit_context: AuditContext) -> Iterator[AuditContext]:
    """Make it the deed of everything that runs in this context."""
    token = _CURRENT.set(audit_context)
    try:
        yield audit_context
    finally:
        _CURRENT.reset(token)


@contextmanager
def unrecorded() -> Iterator[None]:
    """What is written within is no deed of anybody's: counting, for example."""
    token = _CURRENT.set(None)
    try:
        yield
    finally:
        _CURRENT.reset(token)


def kept_with_answer() -> bool:
    """Whether what the request does is committed only with its answer."""
    audit_context = current_deed()
    return audit_context is not None and audit_context.envelope is not None


def afterwards(callback: Callable[[], None]) -> None:
    """Call it when what was just done is committed: now, unless the request's envelope is still open."""
    audit_context = current_deed()
    if audit_context is None or audit_context.envelope is None:
        callback()
    else:
        audit_context.envelope.afterwards(callback)


def name_action(action: str) -> None:
    """Say what the request is for, once its route is known."""
    audit_context = _CURRENT.get()
    if audit_context is not None:
        audit_context.action = action


def name_actor(kind: str, id_: UUID | None, name: str) -> None:
    """Say who asks, once that is known."""
    audit_context = _CURRENT.get()
    if audit_context is not None:
        audit_context.actor_kind, audit_context.actor_id, audit_context.actor = kind, id_, name


def note_change(
    kind: str, target: object, namespace: str | None = None, *, before: Any = None, after: Any = None
) -> None:
    """Have it written down that the transaction at hand changes this; nothing outside of a request.

    `before` and `after` are documents, of which digests are kept; None for what is not there.
    """
    audit_context = _CURRENT.get()
    if audit_context is not None and audit_context.mutates:
        audit_context.changes.append(
            AuditedChange(kind, str(target), namespace, digest_of(before), digest_of(after))
        )


def note_after(kind: str, target: object, after: Any) -> None:
    """Say what has become of something whose change was noted before it was known what it would be."""
    audit_context = _CURRENT.get()
    if audit_context is None or not audit_context.mutates:
        return
    for place, change in enumerate(audit_context.changes):
        if (change.kind, change.target) == (kind, str(target)):
            audit_context.changes[place] = replace(change, after=digest_of(after))


def note_hidden(namespace: str) -> None:
    """Say that something was asked for that exists, but not for whoever asks; the answer will not tell."""
    audit_context = _CURRENT.get()
    if audit_context is not None:
        audit_context.hidden = True
        audit_context.namespace = audit_context.namespace or namespace
