"""Webhooks: defined by people, delivered by `webhooks/sender.py`, received from others."""

from __future__ import annotations

import secrets
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import msgspec

from hetuflow_core import ids
from hetuflow_core.access.permissions import Permission
from hetuflow_core.errors import Conflict, Invalid, NotFound, TooLarge, Unauthenticated
from hetuflow_core.jobfile import Document, Kind, WebhookSpec, load_documents, raw_document, to_document
from hetuflow_core.resources.apply import AppliedDocument, ApplyAction, FieldChange
from hetuflow_core.resources.webhooks import Webhook, WebhookDelivery, WebhookReceipt, WebhookRequest
from hetuflow_core.runtime.clock import Clock
from hetuflow_server.events.service import Events, check_event
from hetuflow_server.events.store import NewEvent
from hetuflow_server.identity import access_store
from hetuflow_server.jobs.document_changes import field_changes
from hetuflow_server.postgres.database import Connection, Database
from hetuflow_server.requests.audit_context import AuditContext
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.secrets import store as secret_store
from hetuflow_server.secrets.keyring import Keyring
from hetuflow_server.secrets.service import open_row
from hetuflow_server.webhooks import signatures, store
from hetuflow_server.webhooks.on_task_end import WebhooksOnTaskEnd

MOST_BODY_BYTES = 1024 * 1024


class Webhooks:
    def __init__(
        self,
        database: Database,
        keyring: Keyring,
        webhooks_on_task_end: WebhooksOnTaskEnd,
        clock: Clock,
        events: Events,
    ) -> None:
        self._database = database
        self._keyring = keyring
        self._webhooks_on_task_end = webhooks_on_task_end
        self._clock = clock
        self._events = events

    async def list_webhooks(
        self,
        context: RequestContext,
        *,
        namespace: str | None,
        after: tuple[str, str] | None,
        limit: int,
        cap: int,
    ) -> tuple[list[Webhook], int]:
        """Return one more than `limit` when there are more, and the total up to just over the cap."""
        reached = context.reach(namespace)
        async with self._database.transaction(context) as connection:
            found = await store.list_webhooks(connection, namespaces=reached, after=after, limit=limit + 1)
            return found, await store.count_webhooks(connection, reached, cap + 1)

    async def webhook(self, context: RequestContext, namespace: str, name: str) -> Webhook:
        context.require_namespace(namespace)
        async with self._database.transaction(context) as connection:
            return await _find(connection, namespace, name)

    async def set(self, context: RequestContext, namespace: str, name: str, asked: WebhookRequest) -> Webhook:
        """Make a webhook, or make it what is asked for."""
        said = {key: value for key, value in msgspec.to_builtins(asked).items() if value is not None}
        document = {"namespace": namespace, "name": name, **said}
        (spec,) = load_documents([raw_document(document)], kind=Kind.WEBHOOK)
        if not isinstance(spec, WebhookSpec):
            raise Invalid("This is no webhook.")
        context.require(Permission.SECRETS_USE, namespace)
        async with self._database.transaction(context) as connection:
            await self.put(connection, context.audit, spec)
            return await _find(connection, namespace, name)

    async def put(
        self, connection: Connection, audit: AuditContext, spec: WebhookSpec
    ) -> tuple[ApplyAction, list[FieldChange]]:
        """Write it inside a transaction; say what that took."""
        namespace_id = (await access_store.namespace_ids(connection, [spec.namespace]))[spec.namespace]
        if not await secret_store.defined(connection, namespace_id, [spec.secret]):
            raise Invalid(
                f"The namespace {spec.namespace} has no secret {spec.secret}: set it first.",
                code="secret.not_defined",
            )
        known = await store.list_webhooks(connection, namespaces=[spec.namespace], name=spec.name, limit=1)
        id_ = ids.new_id(self._clock.now(), secrets.token_bytes(10))
        changed = await store.put(connection, id_, namespace_id, spec)
        if changed is False:
            return ApplyAction.UNCHANGED, []
        before, after = _document(known[0]) if known else None, to_document(spec)
        audit.note_change("webhook", spec.name, spec.namespace, before=before, after=after)
        if spec.url is not None:
            self._webhooks_on_task_end.expect(namespace_id)
        if changed is None or before is None:
            return ApplyAction.CREATED, []
        return ApplyAction.CHANGED, field_changes(before, after)

    async def delete(self, context: RequestContext, namespace: str, name: str) -> None:
        context.require_namespace(namespace)
        async with self._database.transaction(context) as connection:
            namespace_id = (await access_store.namespace_ids(connection, [namespace]))[namespace]
            await delete_webhook(connection, context.audit, namespace_id, namespace, name)

    async def deliveries(
        self,
        context: RequestContext,
        namespace: str,
        name: str,
        *,
        state: str | None,
        after: UUID | None,
        limit: int,
    ) -> list[WebhookDelivery]:
        """Return what is still to be delivered, and what was given up; one more than `limit` if there is."""
        if state not in {None, "waiting", "dead"}:
            raise Invalid("The state of a delivery is waiting or dead.")
        context.require_namespace(namespace)
        async with self._database.transaction(context) as connection:
            await _find(connection, namespace, name)
            return await store.deliveries(
                connection, namespace, name, state=state, after=after, limit=limit + 1
            )

    async def send_again(self, context: RequestContext, namespace: str, name: str, id_: UUID | None) -> int:
        """Have tried again what was given up."""
        context.require_namespace(namespace)
        async with self._database.transaction(context) as connection:
            await _find(connection, namespace, name)
            count = await store.send_again(connection, namespace, name, id_)
            if id_ is not None and not count:
                raise NotFound("There is no such delivery that was given up.", code="delivery.not_found")
            return count

    async def receive(
        self, context: RequestContext, namespace: str, name: str, headers: Mapping[str, str], body: bytes
    ) -> WebhookReceipt:
        """Accept a message that is signed with the secret, and record it as an event.

        A message with an id that is sent again is answered with the event of the first time.
        """
        if len(body) > MOST_BODY_BYTES:
            raise TooLarge(f"A message has {MOST_BODY_BYTES:,} bytes at most: send less.")
        async with self._database.transaction(context) as connection:
            found = await store.receiver(connection, namespace, name)
            secret = None
            if found is not None:
                secret = await self.secret_of(connection, found.namespace_id, found.secret)
            # Whether there is such a webhook is nobody's business who cannot sign for it.
            known = secret if secret is not None else secrets.token_hex()
            message = signatures.verify(known, body, headers, self._clock.now())
            if found is None:
                raise Unauthenticated("The message is signed with another secret.", code="webhook.forged")
            context.audit.name_actor("webhook", found.id, f"{namespace}/{name}")
            payload = check_event(found.event, _payload(body), message.key)
            is_first = await store.note_received(connection, found.id, bytes.fromhex(message.key))
            if not is_first and not message.has_id:
                raise Conflict("This message has come before: sign it anew.", code="webhook.replayed")
            new = NewEvent(found.namespace_id, found.event, payload, message.key, "webhook", name)
            event_id, _ = await self._events.record(connection, new)
            context.audit.note_change("webhook", name, namespace, after={"event": str(event_id)})
        self._events.announce(context)
        return WebhookReceipt(found.event, event_id)

    async def secret_of(self, connection: Connection, namespace_id: int, name: str) -> str | None:
        """Return what messages are signed with; None when the secret is gone."""
        for row in await secret_store.values(connection, namespace_id, {name: None}):
            return open_row(self._keyring, row)
        return None


async def delete_webhook(
    connection: Connection, audit: AuditContext, namespace_id: int, namespace: str, name: str
) -> None:
    """Delete a webhook within a transaction, with what it had still to deliver."""
    known = await _find(connection, namespace, name)
    if not await store.delete(connection, namespace_id, name):
        raise _no_webhook(namespace, name)
    audit.note_change("webhook", name, namespace, before=_document(known))


async def apply_webhooks(
    connection: Connection, audit: AuditContext, specs: Sequence[Document], webhooks: Webhooks | None
) -> list[AppliedDocument]:
    """Write the webhooks of documents, in the order of their names."""
    given = sorted(
        (spec for spec in specs if isinstance(spec, WebhookSpec)), key=lambda one: (one.namespace, one.name)
    )
    if not given:
        return []
    if webhooks is None:
        raise Invalid("There is no key to sign messages with.", code="secret.no_key")
    items = []
    for spec in given:
        action, fields = await webhooks.put(connection, audit, spec)
        items.append(
            AppliedDocument(
                *(spec.kind.value, spec.namespace, spec.name, action),
                changes=[field.path for field in fields],
                fields=fields,
            )
        )
    return items


def _payload(body: bytes) -> Any:
    try:
        return msgspec.json.decode(body) if body else {}
    except (msgspec.MsgspecError, RecursionError):
        raise Invalid("The message is no JSON.", code="request.malformed") from None


def _document(webhook: Webhook) -> dict[str, Any]:
    """As its file has it."""
    return to_document(
        WebhookSpec(
            namespace=webhook.namespace,
            name=webhook.name,
            url=webhook.url,
            events=tuple(webhook.events),
            jobs=tuple(webhook.jobs),
            receives=webhook.receives,
            secret=webhook.secret,
            enabled=webhook.enabled,
        )
    )


async def _find(connection: Connection, namespace: str, name: str) -> Webhook:
    found = await store.list_webhooks(connection, namespaces=[namespace], name=name, limit=1)
    if not found:
        raise _no_webhook(namespace, name)
    return found[0]


def _no_webhook(namespace: str, name: str) -> NotFound:
    return NotFound(f"The namespace {namespace} has no webhook {name}.", code="webhook.not_found")
