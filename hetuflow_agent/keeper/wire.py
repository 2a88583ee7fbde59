"""What agent and keeper say to each other: frames of JSON over a unix socket in the agent's folder.

A frame is its length in four bytes, then a list of messages. Both sides begin with `hello`; the rest is:

    agent   spawn    start this command under `key`, at `at` and not before; said twice it is the same, and
                     what is left out is as `Spec` has it
            slots    so many of those that are counted may run at once; the others wait in line
            stop     end `key`: TERM, up to `grace` seconds, KILL of everything it started
            recall   end `keys`, unless they have begun
            renew    the server was asked at `sent_at` and has renewed everything except what to `stop`
            forget   the ends of `keys` are known and kept elsewhere
            quit     end once nothing runs; with `now`, end what runs first
    keeper  state    how `key` is: waiting, running, ended, failed (could not be started) or lost

Every version answers `hello` and `quit`; the others belong to the protocol's number. Times are seconds of
CLOCK_BOOTTIME. The newest session that says hello is the one that is listened to.
"""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any, Final

PROTOCOL: Final = 1
SOCKET_NAME: Final = "keeper.sock"
LOG_NAME: Final = "keeper.log"
LOCK_NAME: Final = "keeper.lock"
JOURNAL_NAME: Final = "keeper.journal"
READY: Final = b"ready\n"

_LENGTH: Final = struct.Struct(">I")
_LONGEST_FRAME: Final = 256 * 1024 * 1024

Message = dict[str, Any]

# Paths and variables that are no UTF-8 are lone surrogates in Python; ASCII escapes carry them unharmed.
encode: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Garbled(ValueError):
    """The other side sent something that is no frame."""


def pack(messages: Sequence[Message]) -> bytes:
    return frame(map(encode, messages))


def frame(encoded: Iterable[str]) -> bytes:
    """Of messages that are encoded already."""
    return framed(f"[{','.join(encoded)}]".encode("ascii"))


def framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


class Unpacker:
    """Bytes in, messages out; what is not whole yet waits."""

    def __init__(self, read: Callable[[bytes], Any] = json.loads) -> None:
        """`read`: what a frame holds; raises ValueError for what is no JSON."""
        self._read = read
        self._buffer = bytearray()

    def feed(self, data: bytes) -> list[Message]:
        self._buffer += data
        found: list[Message] = []
        while len(self._buffer) >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(self._buffer)
            if length > _LONGEST_FRAME:
                raise Garbled(f"a frame of {length} bytes")
            end = _LENGTH.size + length
            if len(self._buffer) < end:
                break
            found += self._messages(bytes(self._buffer[_LENGTH.size : end]))
            del self._buffer[:end]
        return found

    def _messages(self, body: bytes) -> list[Message]:
        try:
            messages = self._read(body)
        except ValueError as error:
            raise Garbled(str(error)) from error
        if not isinstance(messages, list) or not all(isinstance(each, dict) for each in messages):
            raise Garbled("not a list of messages")
        return messages


class SocketPath:
    """The socket's address through its open folder: the path itself may be longer than a socket's may be."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> str:
        return f"/proc/self/fd/{self._descriptor}/{SOCKET_NAME}"

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
