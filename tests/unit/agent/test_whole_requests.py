"""A request leaves in one piece, on a connection that is used again."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import httpcore

from hetuflow_agent.gateway_client.whole_requests import WholeRequests

_ANSWER = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\n{}"


class Wire(httpcore.AsyncNetworkStream):
    """Writes down what is written, and answers every request."""

    def __init__(self) -> None:
        self.written: list[bytes] = []

    async def write(self, buffer: bytes, timeout: float | None = None) -> None:  # noqa: ASYNC109  httpcore's
        self.written.append(buffer)

    async def read(self, max_bytes: int, timeout: float | None = None) -> bytes:  # noqa: ASYNC109  httpcore's
        return _ANSWER

    async def aclose(self) -> None:
        pass

    async def start_tls(self, *_: Any, **__: Any) -> httpcore.AsyncNetworkStream:
        return self

    def get_extra_info(self, info: str) -> Any:
        return None


class Wires(httpcore.AnyIOBackend):
    def __init__(self) -> None:
        super().__init__()
        self.wires: list[Wire] = []

    async def connect_tcp(
        self,
        host: str,
        port: int,
        timeout: float | None = None,  # noqa: ASYNC109  httpcore's
        local_address: str | None = None,
        socket_options: Iterable[httpcore.SOCKET_OPTION] | None = None,
    ) -> httpcore.AsyncNetworkStream:
        self.wires.append(Wire())
        return self.wires[-1]


async def written(scheme: str, bodies: list[bytes]) -> list[list[bytes]]:
    whole, wires = WholeRequests(), Wires()
    whole._backend = wires
    async with httpcore.AsyncConnectionPool(network_backend=whole) as pool:
        for body in bodies:
            length = b"%d" % len(body)
            await pool.request(
                b"POST", f"{scheme}://server.test/x", headers={b"Content-Length": length}, content=body
            )
    return [wire.written for wire in wires.wires]


async def test_head_and_body_are_one_write() -> None:
    ((first, second),) = await written("http", [b'{"a":1}', b"POST is the first word of this one"])
    assert first.startswith(b"POST /x HTTP/1.1\r\n")
    assert first.endswith(b'\r\n\r\n{"a":1}')
    assert second.startswith(b"POST /x HTTP/1.1\r\n")
    assert second.endswith(b"\r\n\r\nPOST is the first word of this one")


async def test_on_an_encrypted_line_too() -> None:
    ((only,),) = await written("https", [b"{}"])
    assert only.endswith(b"\r\n\r\n{}")
