"""The REST calls about named limits."""

from __future__ import annotations

from urllib.parse import quote

from hetuflow_core.client.calls import get, pages, post, segment, send
from hetuflow_core.client.exchange import Plan, Request, Stream
from hetuflow_core.client.retry import answered
from hetuflow_core.resources.limits import Limit, LimitChange, LimitRequest
from hetuflow_core.resources.pages import Page


def limits(*, namespace: str | None = None, page_size: int | None = None) -> Stream[Limit]:
    """The named limits of a namespace, or of all you may see, with how much of each is in use."""
    query = {"namespace": namespace, "limit": page_size}
    return (yield from pages("/limits", query, Page[Limit]))


def limit(namespace: str, name: str) -> Plan[Limit]:
    """The limit of this name, such as tool:claude; `NotFound` if there is none."""
    return (yield from get(_limit_path(namespace, name), Limit))


def create_limit(namespace: str, name: str, most: int) -> Plan[Limit]:
    """Define a limit that jobs of the namespace may name; `Conflict` if there is one already."""
    return (yield from post("/limits", LimitRequest(name, most, namespace), Limit))


def set_limit(namespace: str, name: str, most: int) -> Plan[Limit]:
    """Raise or lower a limit; nothing that runs is ended by it."""
    path = _limit_path(namespace, name)
    return (yield from send("PATCH", path, Limit, LimitChange(most), repeatable=True))


def delete_limit(namespace: str, name: str) -> Plan[None]:
    """Delete a limit; `Conflict` while a job names it or unfinished work counts against it."""
    yield from answered(Request("DELETE", _limit_path(namespace, name)))


def _limit_path(namespace: str, name: str) -> str:
    return f"/limits/{segment(namespace)}/{quote(name)}"
