"""Webhooks in the REST API."""

from __future__ import annotations

from datetime import datetime
from uuid import UUID

import msgspec


class Webhook(msgspec.Struct, frozen=True):
    """Sends messages when tasks end (`url`), or turns received messages into events (`receives`)."""

    namespace: str
    name: str
    enabled: bool
    # The name of the secret that signs messages.
    secret: str
    url: str | None
    events: list[str]
    # Only for these jobs; all jobs if empty.
    jobs: list[str]
    # The name of the event created from a received message.
    receives: str | None
    created_at: datetime
    updated_at: datetime
    # Waiting and abandoned deliveries; at most 10,000 are counted.
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
    """A message that waits for delivery or could not be delivered."""

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
    """Confirms that a message was accepted."""

    # The name and id of the created event.
    event: str
    event_id: UUID


class WebhookRedelivery(msgspec.Struct, frozen=True):
    """The number of deliveries that are tried again."""

    count: int
