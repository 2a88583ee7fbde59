"""Hosts for the parts of the scene: network namespaces around a router that can lose packets.

The namespaces have no names and hang on nothing but this process and those it has started: whatever becomes
of it, the kernel takes them away with the last of these. This process is the router as long as they last.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

_CLONE_NEWNET: Final = 0x40000000
# Resolved before any fork: looking a symbol up takes locks that another thread may hold at that moment.
_LIBC: Final = ctypes.CDLL(None, use_errno=True)
_setns, _unshare = _LIBC.setns, _LIBC.unshare
# Of this thread, wherever it is: all of these are asked anew.
_WHERE_WE_ARE: Final = "/proc/thread-self/ns/net"
_COUNTERS: Final = Path("/proc/thread-self/net/dev")
_SENT_PACKETS: Final = 9
# Set aside for tests of network devices (RFC 2544), and nobody's own.
_NETWORK: Final = "198.18.{}.{}"
_TABLES: Final = 100
_ORDER_SECONDS: Final = 30.0


class NoNamespaces(Exception):
    """None are to be had here; says why."""


class Namespaces:
    """`add` makes a host, `cut` and `mend` are what may happen between two of them."""

    def __init__(self, ip: str) -> None:
        self._ip = ip
        self._outside = _here()
        self._moved = False
        self._hosts: dict[str, int] = {}
        self._walls: dict[tuple[str, str], int] = {}
        self._built = 0
        # Where lost packets go: nobody is there.
        self._void: int | None = None

    @classmethod
    def open(cls) -> Namespaces:
        """Make this process the router of an empty network; raise NoNamespaces where that cannot be."""
        if os.geteuid() != 0:
            raise NoNamespaces("it takes root")
        ip = shutil.which("ip") or shutil.which("ip", path="/usr/sbin:/sbin")
        if ip is None:
            raise NoNamespaces("there is no program `ip`, which is in the package iproute2")
        network = cls(ip)
        try:
            network._become_router()
        except BaseException as error:
            network.close()
            if isinstance(error, OSError):
                raise NoNamespaces(str(error)) from error
            raise
        return network

    def close(self) -> None:
        """Be where we were before."""
        if self._moved:
            enter(self._outside)
        for descriptor in (self._outside, self._void, *self._hosts.values()):
            if descriptor is not None:
                os.close(descriptor)

    def add(self, name: str) -> str:
        """Make a host with a line to the router; return its address."""
        number = len(self._hosts) + 1
        self._hosts[name] = host = self._made()
        router, address = _NETWORK.format(number, 1), _NETWORK.format(number, 2)
        self._order(
            f"link add to-{number} type veth peer name eth0 netns {_as_path(host)}",
            f"address add {router}/30 dev to-{number}",
            f"link set to-{number} up",
        )
        with _inside(host):
            self._order(
                "link set lo up",
                f"address add {address}/30 dev eth0",
                "link set eth0 up",
                f"route add default via {router}",
            )
        return address

    def address(self, name: str) -> str:
        return _NETWORK.format(list(self._hosts).index(name) + 1, 2)

    def entrance(self, name: str) -> Callable[[], None]:
        """Return what a child of ours calls, as root, to be on this host."""
        host = self._hosts[name]
        return lambda: enter(host)

    @contextmanager
    def inside(self, name: str) -> Iterator[None]:
        """Be on this host, with all that is started meanwhile. Nothing is to be awaited in here."""
        with _inside(self._hosts[name]):
            yield

    def cut(self, one: str, other: str, direction: str) -> None:
        """Lose what `one` says to `other` (`there`), what it is told (`back`), or `both`, without a word."""
        self._built += 1
        self._walls[one, other] = wall = self._built
        table = _TABLES + wall
        self._order(
            # Nobody is asked for an address behind it, so nobody says that there is no way to it.
            f"link add wall-{wall} arp off type veth peer name wall-{wall} netns {_as_path(self._void)}",
            f"link set wall-{wall} up",
        )
        with _inside(self._void):
            self._order(f"link set wall-{wall} up")
        there, back = self.address(one), self.address(other)
        self._order(
            f"route add default dev wall-{wall} table {table}",
            *([f"rule add from {there} to {back} table {table}"] if direction in {"there", "both"} else []),
            *([f"rule add from {back} to {there} table {table}"] if direction in {"back", "both"} else []),
        )

    def mend(self, one: str, other: str) -> int:
        """Let everything pass again; return how many packets were lost."""
        wall = self._walls.pop((one, other))
        lost = _sent(f"wall-{wall}")
        self._order(f"rule flush table {_TABLES + wall}", f"link del wall-{wall}")
        return lost

    def _become_router(self) -> None:
        self._void = self._made()
        _call(_unshare, _CLONE_NEWNET)
        self._moved = True
        self._order("link set lo up")
        settings = Path("/proc/sys/net/ipv4")
        (settings / "ip_forward").write_text("1")
        for which in ("all", "default"):
            # It would take one way for closed because the other one is.
            (settings / f"conf/{which}/rp_filter").write_text("0")
        # Its own chatter would be counted among what is lost.
        with suppress(FileNotFoundError):
            Path("/proc/sys/net/ipv6/conf/default/disable_ipv6").write_text("1")
        self._try()

    def _try(self) -> None:
        """Do everything once that will be done: a kernel may lack any of it."""
        self.add("trial")
        self.cut("trial", "trial", "both")
        self.mend("trial", "trial")
        self._order("link del to-1")
        os.close(self._hosts.pop("trial"))

    @staticmethod
    def _made() -> int:
        """Return a new namespace; this process is where it was before."""
        before = _here()
        try:
            _call(_unshare, _CLONE_NEWNET)
            made = _here()
            enter(before)
        finally:
            os.close(before)
        return made

    def _order(self, *orders: str) -> None:
        done = subprocess.run(  # noqa: S603  orders of ours
            [self._ip, "-batch", "-"],
            input="\n".join(orders) + "\n",
            check=False,
            capture_output=True,
            text=True,
            timeout=_ORDER_SECONDS,
        )
        if done.returncode != 0:
            raise OSError(f"`ip` refused {' / '.join(orders)}: {done.stderr.strip()}")


def enter(namespace: int) -> None:
    """Take this thread there."""
    _call(_setns, namespace, _CLONE_NEWNET)


def _here() -> int:
    return os.open(_WHERE_WE_ARE, os.O_RDONLY | os.O_CLOEXEC)


def _call(function: Callable[..., int], *arguments: int) -> None:
    if function(*arguments) != 0:
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number))


@contextmanager
def _inside(namespace: int | None) -> Iterator[None]:
    before = _here()
    if namespace is not None:
        enter(namespace)
    try:
        yield
    finally:
        enter(before)
        os.close(before)


def _as_path(namespace: int | None) -> str:
    return f"/proc/{os.getpid()}/fd/{namespace}"


def _sent(device: str) -> int:
    for line in _COUNTERS.read_text().splitlines():
        name, _, figures = line.partition(":")
        if name.strip() == device:
            return int(figures.split()[_SENT_PACKETS])
    return 0
