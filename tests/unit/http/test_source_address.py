"""Whose address a request counts for."""

from __future__ import annotations

import pytest

from hetuflow_server.http.source_address import networks, source_address


@pytest.mark.parametrize(
    ("peer", "forwarded", "trusted", "source"),
    [
        ("203.0.113.9", None, [], "203.0.113.9"),
        ("203.0.113.9", "192.0.2.1", [], "203.0.113.9"),
        ("10.0.0.1", "192.0.2.1", ["10.0.0.0/8"], "192.0.2.1"),
        ("10.0.0.1", "198.51.100.7, 192.0.2.1", ["10.0.0.0/8"], "192.0.2.1"),
        ("10.0.0.1", "192.0.2.1, 10.0.0.2", ["10.0.0.0/8"], "192.0.2.1"),
        ("10.0.0.1", "10.0.0.3, 10.0.0.2", ["10.0.0.0/8"], "10.0.0.3"),
        ("10.0.0.1", "<script>", ["10.0.0.0/8"], "10.0.0.1"),
        ("10.0.0.1", "", ["10.0.0.0/8"], "10.0.0.1"),
        ("fd00::1", "2001:db8::5", ["fd00::/8"], "2001:db8::5"),
        (None, "192.0.2.1", ["10.0.0.0/8"], None),
    ],
)
def test_only_what_trusted_proxies_say_is_believed(
    peer: str | None, forwarded: str | None, trusted: list[str], source: str | None
) -> None:
    assert source_address(peer, forwarded, networks(trusted)) == source
