"""The REST calls about servers and the namespaces they look after."""

from __future__ import annotations

from collections.abc import Mapping
from uuid import UUID

from msgspec import UNSET, UnsetType

from hetuflow_core.client.calls import get, pages, post, segment, send
from hetuflow_core.client.exchange import Plan, Stream
from hetuflow_core.resources.cluster import Leader, Server
from hetuflow_core.resources.namespaces import BindRequest, Namespace, NamespaceChange, NamespaceRequest
from hetuflow_core.resources.pages import Page


def servers(*, page_size: int | None = None) -> Stream[Server]:
    """Servers, the youngest first, those that are gone among them; fetched page by page."""
    return (yield from pages("/servers", {"limit": page_size}, Page[Server]))


def server(server_id: UUID | str) -> Plan[Server]:
    return (yield from get(f"/servers/{segment(server_id)}", Server))


def leader() -> Plan[Leader]:
    """Which server leads; its `server` is None while none does."""
    return (yield from get("/system/leader", Leader))


def namespaces(*, page_size: int | None = None) -> Stream[Namespace]:
    """The namespaces you may see, with the server that looks after each; fetched page by page."""
    return (yield from pages("/namespaces", {"limit": page_size}, Page[Namespace]))


def namespace(name: str) -> Plan[Namespace]:
    return (yield from get(f"/namespaces/{segment(name)}", Namespace))


def create_namespace(
    name: str, *, weight: int = 100, labels: Mapping[str, str] | None = None, lease: str | None = None
) -> Plan[Namespace]:
    """Make a namespace; `Conflict` if there is one already."""
    request = NamespaceRequest(name, weight, dict(labels or {}), lease)
    return (yield from post("/namespaces", request, Namespace))


def set_namespace(
    name: str,
    *,
    weight: int | None = None,
    labels: Mapping[str, str] | None = None,
    lease: str | UnsetType | None = UNSET,
) -> Plan[Namespace]:
    """Change the weight or the lease, or replace the labels; what is not given stays.

    `lease=None` takes the lease away: the default counts again.
    """
    change = NamespaceChange(weight, None if labels is None else dict(labels), lease)
    return (yield from send("PATCH", f"/namespaces/{segment(name)}", Namespace, change, repeatable=True))


def bind_namespace(name: str, server: str, *, pinned: bool = True) -> Plan[Namespace]:
    """Give a namespace to the server of this id or hostname; pinned, it stays with that host."""
    path = f"/namespaces/{segment(name)}/bind"
    return (yield from post(path, BindRequest(server, pinned), Namespace, repeatable=True))


def unbind_namespace(name: str) -> Plan[Namespace]:
    """Take a pin away; where the namespace is from then on is the leader's business."""
    path = f"/namespaces/{segment(name)}/bind"
    return (yield from post(path, BindRequest(pinned=False), Namespace, repeatable=True))
