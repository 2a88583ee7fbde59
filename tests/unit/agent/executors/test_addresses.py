"""Which addresses a job's request may be sent to."""

from __future__ import annotations

import pytest

from hetuflow_core.addresses import parse_networks, permitted


@pytest.mark.parametrize("address", ["93.184.215.14", "2606:2800:21f:cb07:6820:80da:af6b:8b2c", "8.8.8.8"])
def test_public_addresses_are_permitted(address: str) -> None:
    assert permitted(address, ())


@pytest.mark.parametrize(
    "address",
    [
        "127.0.0.1",
        "127.8.8.8",
        "::1",
        "0.0.0.0",
        "::",
        "10.1.2.3",
        "172.16.0.1",
        "192.168.1.1",
        "100.64.0.1",
        "169.254.169.254",
        "fe80::1",
        "fe80::1%eth0",
        "fd00:ec2::254",
        "224.0.0.1",
        "ff02::1",
        "240.0.0.1",
        "255.255.255.255",
        "::ffff:127.0.0.1",
        "::ffff:169.254.169.254",
        "64:ff9b::7f00:1",
        "64:ff9b::a9fe:a9fe",
        "2002:7f00:1::",
        "2001:0:5ef5:79fd:0:5f6:80ff:fffe",
    ],
)
def test_everything_else_is_not(address: str) -> None:
    assert not permitted(address, ())


def test_listed_networks_are_permitted_and_only_they() -> None:
    allowed = parse_networks(["10.0.0.0/8", "::1/128"])
    assert permitted("10.200.1.1", allowed)
    assert permitted("::1", allowed)
    assert permitted("::ffff:10.0.0.1", allowed)
    # By way of a gateway between the two protocols it is that very host.
    assert permitted("64:ff9b::a00:1", allowed)
    assert permitted("64:ff9b::808:808", ())
    assert not permitted("127.0.0.1", allowed)
    assert not permitted("192.168.0.1", allowed)
