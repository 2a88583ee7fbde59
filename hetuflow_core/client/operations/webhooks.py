"""The REST calls about webhooks."""

from __future__ import annotations

from collections.abc import Sequence
from uuid import UUID

from hetuflow_core.client.calls import get, pages, post, segment, send
from hetuflow_core.client.exchange import Plan, Request, Stream
from hetuflow_core.client.retry import answered
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.webhooks import Webhook, WebhookDelivery, WebhookRedelivery, WebhookRequest


def webhooks(*, namespace: str | None = None, page_size: int | None = None) -> Stream[Webhook]:
    """The webhooks of a namespace, or of all you may see."""
    return (yield from pages("/webhooks", {"namespace": namespace, "limit": page_size}, Page[Webhook]))


def webhook(namespace: str, name: str) -> Plan[Webhook]:
    return (yield from get(_path(namespace, name), Webhook))


def set_webhook(
    namespace: str,
    name: str,
    *,
    secret: str,
    url: str | None = None,
    receives: str | None = None,
    events: Sequence[str] | None = None,
    jobs: Sequence[str] | None = None,
    enabled: bool = True,
) -> Plan[Webhook]:
    """Have `url` told when tasks end, or make events named `receives` of messages that come in."""
    asked = WebhookRequest(
        secret,
        url,
        None if events is None else list(events),
        None if jobs is None else list(jobs),
        None if receives is None else {"event": receives},
        enabled,
    )
    return (yield from send("PUT", _path(namespace, name), Webhook, asked, repeatable=True))


def delete_webhook(namespace: str, name: str) -> Plan[None]:
    """Delete a webhook with what it had still to deliver."""
    yield from answered(Request("DELETE", _path(namespace, name)))


def webhook_deliveries(
    namespace: str, name: str, *, state: str | None = None, page_size: int | None = None
) -> Stream[WebhookDelivery]:
    """What waits to be delivered (`waiting`), and what was given up (`dead`)."""
    path = f"{_path(namespace, name)}/deliveries"
    return (yield from pages(path, {"state": state, "limit": page_size}, Page[WebhookDelivery]))


def redeliver_webhook(namespace: str, name: str, delivery_id: UUID | str | None = None) -> Plan[int]:
    """Have tried again what was given up, one delivery or all of them; how many."""
    path = f"{_path(namespace, name)}/redeliver"
    query = {"delivery_id": None if delivery_id is None else str(delivery_id)}
    answer = yield from post(path, None, WebhookRedelivery, query=query, repeatable=True)
    return answer.count


def _path(namespace: str, name: str) -> str:
    return f"/webhooks/{segment(namespace)}/{segment(name)}"
