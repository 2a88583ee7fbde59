"""The REST calls about secrets; none of them gives a value back."""

from __future__ import annotations

from hetuflow_core.client.calls import get, pages, post, segment, send
from hetuflow_core.client.exchange import Plan, Request, Stream
from hetuflow_core.client.retry import answered
from hetuflow_core.resources.pages import Page
from hetuflow_core.resources.secrets import KeyRotation, Secret, SecretValue


def secrets(*, namespace: str | None = None, page_size: int | None = None) -> Stream[Secret]:
    """What is known of the secrets of a namespace, or of all you may see."""
    return (yield from pages("/secrets", {"namespace": namespace, "limit": page_size}, Page[Secret]))


def secret(namespace: str, name: str) -> Plan[Secret]:
    """What is known of a secret, and which jobs use it; `NotFound` if there is none."""
    return (yield from get(_path(namespace, name), Secret))


def set_secret(namespace: str, name: str, value: str) -> Plan[Secret]:
    """Give a secret this value; it is made if there is none, and gets a version if it had another value."""
    return (yield from send("PUT", _path(namespace, name), Secret, SecretValue(value), repeatable=True))


def rotate_secret(namespace: str, name: str, value: str) -> Plan[Secret]:
    """Give a secret that is there a new value; `NotFound` if there is none."""
    return (yield from send("PATCH", _path(namespace, name), Secret, SecretValue(value), repeatable=True))


def delete_secret(namespace: str, name: str) -> Plan[None]:
    """Delete a secret with all its values; `Conflict` while a job uses it."""
    yield from answered(Request("DELETE", _path(namespace, name)))


def rotate_key() -> Plan[KeyRotation]:
    """Encrypt some secrets with the servers' newest key; call it until none remains."""
    return (yield from post("/secrets/rotate-key", None, KeyRotation, repeatable=True))


def _path(namespace: str, name: str) -> str:
    return f"/secrets/{segment(namespace)}/{segment(name)}"
