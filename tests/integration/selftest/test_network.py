"""The networks of the self-test: what is cut is lost or held, in the direction that was asked for."""

from __future__ import annotations

import json
import os
import shutil
import socket
import socketserver
import threading
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, asynccontextmanager, closing, contextmanager, suppress
from pathlib import Path

import pytest

from hetuflow_core.errors import HostBlocked
from hetuflow_selftest.history import PROXY, read_history
from hetuflow_selftest.scene import namespaces
from hetuflow_selftest.scene.lines import Lines
from hetuflow_selftest.scene.namespaces import Namespaces, NoNamespaces
from hetuflow_selftest.scene.network import AUTO, BALANCER, NAMESPACES, PROXIES, Loopback, build_network

# Long enough for what is not lost, on a busy machine.
_PATIENCE = 30.0
# How long nothing has to be heard of what is.
_SILENCE = 0.3
_HERE = Path("/proc/thread-self/ns/net")


@contextmanager
def two_hosts() -> Iterator[Namespaces]:
    try:
        network = Namespaces.open()
    except NoNamespaces as reason:
        pytest.skip(f"there are no network namespaces here: {reason}")
    with closing(network):
        network.add("one")
        network.add("other")
        yield network


@contextmanager
def conversation(network: Namespaces) -> Iterator[tuple[socket.socket, socket.socket]]:
    """Give both ends of a connection from one host to the other."""
    with network.inside("other"):
        listener = socket.create_server((network.address("other"), 0))
    with network.inside("one"):
        near = socket.create_connection(listener.getsockname(), timeout=_PATIENCE)
    with near, listener:
        far, _ = listener.accept()
        with far:
            yield near, far


def hears(end: socket.socket, expected: bytes, patience: float = _PATIENCE) -> bool:
    """Whether exactly this arrives; silence is no error."""
    end.settimeout(patience)
    try:
        return end.recv(100) == expected
    except (TimeoutError, ConnectionResetError):
        return False


@pytest.mark.parametrize(
    ("direction", "arrives", "answered"),
    [("there", False, True), ("back", True, False), ("both", False, False)],
)
def test_packets_between_hosts_are_lost_without_a_word(direction: str, arrives: bool, answered: bool) -> None:
    with two_hosts() as network, conversation(network) as (near, far):
        near.sendall(b"before")
        assert hears(far, b"before")
        network.cut("one", "other", direction)
        near.sendall(b"asked")
        assert hears(far, b"asked", _PATIENCE if arrives else _SILENCE) is arrives
        far.sendall(b"told")
        assert hears(near, b"told", _PATIENCE if answered else _SILENCE) is answered
        assert network.mend("one", "other") > 0
        # Nobody has given up: the kernels repeat what was lost.
        assert arrives or hears(far, b"asked")
        assert answered or hears(near, b"told")


def test_other_hosts_hear_each_other_meanwhile_and_nothing_stays() -> None:
    here = _HERE.readlink()
    with two_hosts() as network:
        assert _HERE.readlink() != here
        network.add("third")
        network.cut("third", "other", "both")
        with conversation(network) as (near, far):
            near.sendall(b"asked")
            assert hears(far, b"asked")
        assert network.mend("third", "other") == 0
    assert _HERE.readlink() == here
    assert "to-1" not in Path("/proc/net/dev").read_text()


def test_root_without_the_right_to_make_namespaces_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in most containers: neither may it make one, nor go anywhere."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    for call in ("_unshare", "_setns"):
        monkeypatch.setattr(namespaces, call, lambda *_: -1)
    monkeypatch.setattr(shutil, "which", lambda *_, **__: "/sbin/ip")
    with pytest.raises(NoNamespaces):
        Namespaces.open()


def test_proxies_stand_in_where_there_are_no_namespaces(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    told: list[str] = []
    assert build_network(AUTO, Lines(tmp_path), told.append).name == PROXIES
    assert told == ["no network namespaces here (it takes root): lines go through proxies instead"]
    with pytest.raises(HostBlocked, match="it takes root"):
        build_network(NAMESPACES, Lines(tmp_path), told.append)


class Echo(socketserver.BaseRequestHandler):
    def handle(self) -> None:
        while said := self.request.recv(100):
            self.request.sendall(said)


@contextmanager
def echoes(count: int) -> Iterator[list[tuple[str, int]]]:
    """Give the addresses of so many."""
    with ExitStack() as stack:
        servers = [
            stack.enter_context(socketserver.ThreadingTCPServer(("127.0.0.1", 0), Echo)) for _ in range(count)
        ]
        for server in servers:
            threading.Thread(target=server.serve_forever, daemon=True).start()
            stack.callback(server.shutdown)
        yield [("127.0.0.1", server.server_address[1]) for server in servers]


@asynccontextmanager
async def started(folder: Path) -> AsyncIterator[Lines]:
    lines = Lines(folder)
    await lines.start("127.0.0.1", None)
    try:
        yield lines
    finally:
        await lines.stop()


async def test_a_line_holds_what_is_said_and_delivers_it_late(tmp_path: Path) -> None:
    with echoes(1) as targets:
        async with started(tmp_path) as lines:
            port = await lines.open("line", targets, http=False)
            with socket.create_connection(("127.0.0.1", port)) as end:
                for direction in ("there", "back", "both"):
                    await lines.suffer("line", "hold", direction=direction)
                    end.sendall(direction.encode())
                    assert not hears(end, direction.encode(), _SILENCE)
                    assert await lines.heal("line") == 1
                    assert hears(end, direction.encode())
    held = [record["fault"] for record in read_history(tmp_path, PROXY)]
    assert held == ["hold", None] * 3


async def test_only_the_lines_of_one_server_are_held(tmp_path: Path) -> None:
    with echoes(2) as targets, ExitStack() as stack:
        async with started(tmp_path) as lines:
            port = await lines.open("line", targets, http=False)
            ends = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in targets]
            for end in ends:
                end.sendall(b"before")
                assert hears(end, b"before")
            await lines.suffer("line", "hold", target=1)
            for end in ends:
                end.sendall(b"asked")
            assert sorted(hears(end, b"asked", _SILENCE) for end in ends) == [False, True]


class Answering(socketserver.BaseRequestHandler):
    """Speaks HTTP, and lets whoever asks for `/poll` wait."""

    def handle(self) -> None:
        while said := self.request.recv(1_000):
            if b"/poll" not in said:
                self.request.sendall(b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


async def test_only_connections_that_carry_nothing_are_let_go_of(tmp_path: Path) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        async with started(tmp_path) as lines:
            port = await lines.open("line", [("127.0.0.1", server.server_address[1])], http=True)
            with (
                socket.create_connection(("127.0.0.1", port)) as idle,
                socket.create_connection(("127.0.0.1", port)) as waiting,
            ):
                for end, call in ((waiting, "poll"), (idle, "reports")):
                    end.sendall(request(call, {"timestamp": time.time() * 1000 + 30_000}))
                idle.settimeout(_PATIENCE)
                assert idle.recv(100).startswith(b"HTTP/1.1 200")
                await lines.shed("line")
                # A connection that is reset was ended as well.
                with suppress(ConnectionResetError):
                    assert idle.recv(100) == b""
                assert not hears(waiting, b"", _SILENCE)
        server.shutdown()
    # Whatever an agent says tells what it takes the time for.
    assert [record["agent_off"] for record in read_history(tmp_path, PROXY)] == [30.0]


async def test_starts_do_not_use_up_the_answers_that_get_lost(tmp_path: Path) -> None:
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answering) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        async with started(tmp_path) as lines:
            port = await lines.open("line", [("127.0.0.1", server.server_address[1])], http=True)
            await lines.suffer("line", "swallow", paths=["/reports"], most=1)
            heard = [await answered(port, kind) for kind in ("start", "start", "finish", "finish")]
            assert await lines.heal("line") == 2
        server.shutdown()
    assert heard == [False, True, False, True]


async def answered(port: int, kind: str) -> bool:
    """Whether a report of this kind is answered."""
    with socket.create_connection(("127.0.0.1", port)) as end:
        end.sendall(request("reports", {"payload": {"reports": [{"type": kind}]}}))
        return hears(end, b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}")


def request(call: str, body: object) -> bytes:
    text = json.dumps(body)
    head = f"POST /{call} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(text)}\r\n\r\n"
    return (head + text).encode()


async def test_a_server_that_is_cut_from_agents_has_a_part_of_each_of_their_lines(tmp_path: Path) -> None:
    async with started(tmp_path) as lines:
        network = Loopback(lines)
        for name in ("server-1", "server-2", "agent-1", "agent-2"):
            network.add(name)
        for name in ("agent-1", "agent-2"):
            await lines.open(name, [("127.0.0.1", 1), ("127.0.0.1", 2)], http=True)
        await network.cut("server-2", BALANCER)
        assert await network.mend("server-2", BALANCER) == 0
    held = [record["link"] for record in read_history(tmp_path, PROXY) if record["fault"] == "hold"]
    assert held == ["agent-1", "agent-2"]
