"""Where a request comes from, also when it comes through proxies that are trusted to say so."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import IPv4Network, IPv6Network, ip_address, ip_network
from typing import TypeAlias

Network: TypeAlias = IPv4Network | IPv6Network


def networks(texts: Sequence[str]) -> list[Network]:
    return [ip_network(text) for text in texts]


def source_address(peer: str | None, forwarded_for: str | None, trusted: Sequence[Network]) -> str | None:
    """Return the nearest address that is no trusted proxy: what is further away anybody may have written.

    `forwarded_for` is the X-Forwarded-For header: each proxy adds the address it was asked from at its end.
    """
    source = peer
    for hop in reversed((forwarded_for or "").split(",")):
        if source is None or not _within(source, trusted):
            return source
        said = hop.strip()
        if not _is_address(said):
            return source
        source = said
    return source


def _within(address: str, trusted: Sequence[Network]) -> bool:
    return _is_address(address) and any(ip_address(address) in network for network in trusted)


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
