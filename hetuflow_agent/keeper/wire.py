"""The protocol between agent and keeper: frames of JSON over a unix socket in the agent's folder.

A frame is its length in four bytes, followed by a list of messages. Both sides begin with `hello`. The other
messages are:

    agent   spawn    start this command under `key`, not before `at`; a repeated message has no effect, and
                     missing fields have the defaults of `Spec`
            slots    `count` of the counted commands may run at the same time; the others wait
            stop     end `key`: TERM, up to `grace` seconds, then KILL of all its processes
            recall   end `keys`, unless they have begun
            renew    a heartbeat sent at `sent_at` has renewed all leases, except those of the keys in `stop`
            forget   the agent has recorded the ends of `keys`
            quit     exit once no task runs; with `now`, end all tasks first
    keeper  state    the state of `key`: waiting, running, ended, failed (could not be started) or lost

Every version answers `hello` and `quit`; the other messages belong to the protocol number. Times are seconds
of CLOCK_BOOTTIME. The keeper accepts messages of the session that sent `hello` last.
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

# Paths and variables that are not UTF-8 contain lone surrogates in Python; ASCII escapes preserve them.
encode: Final = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class Garbled(ValueError):
    """The other side sent an invalid frame."""


def pack(messages: Sequence[Message]) -> bytes:
    return frame(map(encode, messages))


def frame(encoded: Iterable[str]) -> bytes:
    """A frame of encoded messages."""
    return framed(f"[{','.join(encoded)}]".encode("ascii"))


def framed(body: bytes) -> bytes:
    return _LENGTH.pack(len(body)) + body


class Unpacker:
    """Turns received bytes into messages; an incomplete frame waits for more bytes."""

    def __init__(self, read: Callable[[bytes], Any] = json.loads) -> None:
        """`read` decodes the body of a frame; it raises ValueError if the body is not JSON."""
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
    """The address of the socket through its open folder: the path itself may be too long for a socket."""

    def __init__(self, folder: Path) -> None:
        self._descriptor = os.open(folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)

    def __enter__(self) -> str:
        return f"/proc/self/fd/{self._descriptor}/{SOCKET_NAME}"

    def __exit__(self, *_: object) -> None:
        os.close(self._descriptor)
