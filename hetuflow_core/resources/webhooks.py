"""Webhooks as the REST API shows and takes them."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class Webhook(msgspec.Struct, frozen=True):
    """Messages that go out when tasks end (`url`), or come in and become events (`receives`)."""

    namespace: str
    name: str
    enabled: bool
    # The name of the secret that messages are signed with.
    secret: str
    url: str | None
    events: list[str]
    # Of these jobs only; of all if empty.
    jobs: list[str]
    # The name of the event that a message becomes.
    receives: str | None
    created_at: datetime
    updated_at: datetime
    # Deliveries that are waiting, and those that were given up; no more than 10,000 are counted.
    waiting: int = 0
    dead: int = 0


class WebhookRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    secret: str
    url: str | None = None
    events: list[str] | None = None
    jobs: list[str] | None = None
    receives: dict[str, str] | None = None
    enabled: bool = True


class WebhookDelivery(msgspec.Struct, frozen=True):
    """One message that is to go out, or could not."""

    id: UUID
    namespace: str
    webhook: str
    task_id: UUID
    event: str
    # `waiting` or `dead`.
    state: str
    attempts: int
    created_at: datetime
    next_at: datetime | None
    last_status: int | None
    last_error: str | None


class WebhookReceipt(msgspec.Struct, frozen=True):
    """A message was taken."""

    # The name and the id of the event it has become.
    event: str
    event_id: UUID


class WebhookRedelivery(msgspec.Struct, frozen=True):
    """How many deliveries are tried again."""

    count: int
