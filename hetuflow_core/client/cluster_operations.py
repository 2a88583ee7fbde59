"""The REST calls about servers and the namespaces they look after."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

import msgspec

from hetuflow_core.client.exchange import Plan, Request, Stream
from hetuflow_core.client.operations import _get, _pages, _post, _segment
from hetuflow_core.client.problems import decoded
from hetuflow_core.client.retrying import answered
from hetuflow_core.resources import (
    BindRequest,
    Leader,
    Namespace,
    NamespaceChange,
    NamespaceRequest,
    Page,
    Server,
)


def servers(*, page_size: int | None = None) -> Stream[Server]:
    """Servers, the youngest first, those that are gone among them; fetched page by page."""
    return (yield from _pages("/servers", {"limit": page_size}, Page[Server]))


def server(server_id: UUID | str) -> Plan[Server]:
    return (yield from _get(f"/servers/{_segment(server_id)}", Server))


def leader() -> Plan[Leader]:
    """Which server leads; its `server` is None while none does."""
    return (yield from _get("/system/leader", Leader))


def namespaces(*, page_size: int | None = None) -> Stream[Namespace]:
    """The namespaces you may see, with the server that looks after each; fetched page by page."""
    return (yield from _pages("/namespaces", {"limit": page_size}, Page[Namespace]))


def namespace(name: str) -> Plan[Namespace]:
    return (yield from _get(f"/namespaces/{_segment(name)}", Namespace))


def create_namespace(
    name: str, *, weight: int = 100, labels: Mapping[str, str] | None = None
) -> Plan[Namespace]:
    """Make a namespace; `Conflict` if there is one already."""
    request = NamespaceRequest(name, weight, dict(labels or {}))
    return (yield from _post("/namespaces", request, Namespace))


def set_namespace(
    name: str, *, weight: int | None = None, labels: Mapping[str, str] | None = None
) -> Plan[Namespace]:
    """Change the weight, or replace the labels; what is None stays."""
    change = NamespaceChange(weight, None if labels is None else dict(labels))
    body = msgspec.json.encode(change)
    request = Request("PATCH", f"/namespaces/{_segment(name)}", (), body, repeatable=True)
    return decoded((yield from answered(request)), Namespace)


def bind_namespace(name: str, server: str, *, pinned: bool = True) -> Plan[Namespace]:
    """Give a namespace to the server of this id or hostname; pinned, it stays with that host."""
    path = f"/namespaces/{_segment(name)}/bind"
    return (yield from _post(path, BindRequest(server, pinned), Namespace, repeatable=True))


def unbind_namespace(name: str) -> Plan[Namespace]:
    """Take a pin away; where the namespace is from then on is the leader's business."""
    path = f"/namespaces/{_segment(name)}/bind"
    return (yield from _post(path, BindRequest(pinned=False), Namespace, repeatable=True))
