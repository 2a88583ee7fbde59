"""Decide which addresses the `http` executor and webhook deliveries may connect to.

A job or a webhook may name any URL. Its author is not necessarily trusted with the networks that agents and
servers can reach: the host itself, its neighbours, the metadata service of the cloud. Only public internet
addresses and the networks listed in the settings are permitted.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import (
    IPv4Address,
    IPv4Network,
    IPv6Address,
    IPv6Network,
    ip_address,
    ip_network,
)
from typing import Final, TypeAlias

Address: TypeAlias = "IPv4Address | IPv6Address"
Network: TypeAlias = "IPv4Network | IPv6Network"

_NAT64: Final = ip_network("64:ff9b::/96")
_LOW_32_BITS: Final = 0xFFFF_FFFF


def parse_networks(texts: Iterable[str]) -> tuple[Network, ...]:
    return tuple(ip_network(text, strict=False) for text in texts)


def permitted(text: str, allowed: Sequence[Network]) -> bool:
    """Whether connections to this address are permitted; embedded IPv4 addresses are checked instead."""
    address = _embedded_address(ip_address(text.partition("%")[0]))
    if any(address.version == network.version and address in network for network in allowed):
        return True
    return address.is_global and not (
        address.is_multicast or address.is_reserved or address.is_unspecified or address.is_loopback
    )


def _embedded_address(address: Address) -> Address:
    if isinstance(address, IPv4Address):
        return address
    if address in _NAT64:
        return IPv4Address(int(address) & _LOW_32_BITS)
    teredo = address.teredo[1] if address.teredo else None
    return address.ipv4_mapped or address.sixtofour or teredo or address
