"""The connection to the keeper: connects to a running keeper or starts one.

An idle keeper of another version is replaced.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Final

import msgspec
import structlog

from hetuflow_agent.keeper import wire
from hetuflow_agent.keeper.cgroups import NO_CGROUPS
from hetuflow_agent.processes.command import Command
from hetuflow_core.errors import HostBlocked

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.keeper")

_PROGRAM: Final = Path(wire.__file__).with_name("__main__.py")
# A new keeper first ends the processes that a killed one has left.
_START_SECONDS: Final = 30.0
_HELLO_SECONDS: Final = 10.0
_RENEW_SECONDS: Final = 1.0
_TRIES: Final = 5
_PAUSE: Final = 0.05
_LAST_WAIT: Final = 0.2
_MOST_LOG_BYTES: Final = 1024 * 1024
_READ: Final = 1024 * 1024


@dataclass(frozen=True, slots=True)
class Greeting:
    pid: int
    version: str
    protocol: int
    boot_id: str
    running: int
    # Whether tasks run in a control group of the keeper, and which limits the group can set.
    cgroup: bool
    controllers: tuple[str, ...]
    # Whether commands may wait at the keeper until there is a slot.
    lines_up: bool
    # Whether the keeper knows rolling logs, whose beginning is freed while they grow.
    rolls: bool
    # Whether the keeper limits a task to a number of CPUs where there are no control groups.
    pins: bool
    # The states of all commands that the keeper knows, by key.
    states: dict[str, wire.Message]


def keeper_program(folder: Path, version: str, options: Sequence[str]) -> list[str]:
    return [sys.executable, "-I", "-S", str(_PROGRAM), str(folder), version, *options]


class KeeperLink:
    def __init__(self, folder: Path, *, session: str, version: str, cgroups: bool = True) -> None:
        self._options = () if cgroups else (NO_CGROUPS,)
        self._folder = folder
        self._session = session
        self._version = version
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None
        self._unpacker = wire.Unpacker(_unpack)
        self._popen: subprocess.Popen[bytes] | None = None
        self._renewal_lock = threading.Lock()
        self._renewal: socket.socket | None = None

    @property
    def connected(self) -> bool:
        return self._streams is not None

    async def connect(self) -> Greeting:
        """Connect to a keeper, starting one if needed; raises HostBlocked if that fails."""
        for _ in range(_TRIES):
            greeting = await self._greet()
            if greeting is None:
                await asyncio.to_thread(self._launch)
                greeting = await self._greet()
            if greeting is None:
                await asyncio.sleep(_PAUSE)
            elif greeting.version == self._version or not await self._replace(greeting):
                return greeting
        raise HostBlocked(
            f"The keeper process cannot be started: see {self._folder / wire.LOG_NAME} for why."
        )

    def send(self, messages: Sequence[wire.Message | Command]) -> None:
        if self._streams is not None:
            self._streams[1].write(packed(messages))

    async def receive(self) -> list[wire.Message] | None:
        """The next messages; None if the connection is closed."""
        if self._streams is None:
            return None
        try:
            data = await self._streams[0].read(_READ)
            return self._unpacker.feed(data) if data else None
        except (OSError, wire.Garbled):
            return None

    async def disconnect(self) -> None:
        streams, self._streams = self._streams, None
        if streams is not None:
            streams[1].close()
            with suppress(OSError):
                await streams[1].wait_closed()

    async def close(self) -> None:
        """Disconnect; the keeper exits by itself when nothing runs."""
        await self.disconnect()
        with self._renewal_lock:
            self._close_renewal()
        popen, self._popen = self._popen, None
        if popen is not None:
            with suppress(subprocess.TimeoutExpired):
                await asyncio.to_thread(popen.wait, _LAST_WAIT)
            # The keeper may outlive the agent. Without this, subprocess warns that nothing waited for it.
            popen.returncode = popen.returncode or 0

    def renew(self, sent_at: float, stop: Sequence[str]) -> None:
        """Pass on the time of the last successful heartbeat, and the keys that it did not renew.

        From any thread, over a separate connection: a busy event loop must not let a lease expire.
        """
        frame = wire.pack([{"op": "renew", "sent_at": sent_at, "stop": list(stop)}])
        with self._renewal_lock:
            for last in (False, True):
                try:
                    if self._renewal is None:
                        self._renewal = self._open_renewal()
                    self._renewal.sendall(frame)
                except OSError as error:
                    self._close_renewal()
                    if last:
                        log.warning("leases not renewed at the keeper", error=str(error))
                else:
                    return

    async def _greet(self) -> Greeting | None:
        """Connect and exchange hello; None if no keeper answers."""
        await self.disconnect()
        try:
            with wire.SocketPath(self._folder) as address:
                self._streams = await asyncio.open_unix_connection(address)
        except OSError:
            return None
        self._unpacker = wire.Unpacker(_unpack)
        self.send([{"op": "hello", "session": self._session, "protocol": wire.PROTOCOL}])
        received: list[wire.Message] | None = []
        with suppress(TimeoutError):
            async with asyncio.timeout(_HELLO_SECONDS):
                while received is not None and not received:
                    received = await self.receive()
        if not received or received[0]["op"] != "hello":
            await self.disconnect()
            return None
        hello, *states = received
        return Greeting(
            hello["pid"],
            hello["version"],
            hello["protocol"],
            hello["boot_id"],
            hello["running"],
            bool(hello.get("cgroup")),
            tuple(hello.get("controllers", ())),
            bool(hello.get("lines_up")),
            bool(hello.get("rolls")),
            bool(hello.get("pins")),
            {state["key"]: state for state in states},
        )

    async def _replace(self, greeting: Greeting) -> bool:
        """Replace a keeper of another version; False for a busy one of the same protocol, which is kept."""
        if greeting.running:
            if greeting.protocol != wire.PROTOCOL:
                raise HostBlocked(
                    f"The keeper of {self._folder} is of version {greeting.version} and still runs "
                    f"{greeting.running} tasks: start that version's agent, or wait until they have ended."
                )
            return False
        log.info("replacing an idle keeper of another version", keeper=greeting.pid, version=greeting.version)
        self.send([{"op": "quit"}])
        with suppress(TimeoutError):
            async with asyncio.timeout(_HELLO_SECONDS):
                while await self.receive() is not None:
                    pass
        await self.disconnect()
        return True

    def _launch(self) -> None:
        former, self._popen = self._popen, None
        try:
            if former is not None:
                former.wait(_START_SECONDS)
            with self._open_log() as stderr:
                self._popen = subprocess.Popen(  # noqa: S603  a program of this package
                    keeper_program(self._folder, self._version, self._options),
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=stderr,
                    env={},
                    start_new_session=True,
                )
        except (OSError, subprocess.TimeoutExpired) as error:
            raise HostBlocked(f"The keeper process cannot be started ({error}).") from error
        if self._popen.stdout is not None:
            with self._popen.stdout as stdout:
                stdout.readline()  # READY, or nothing if the keeper exited; the next greeting shows which

    def _open_log(self) -> BinaryIO:
        path = self._folder / wire.LOG_NAME
        file = os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC, 0o600), "ab")
        if file.tell() > _MOST_LOG_BYTES:
            file.truncate(0)
        return file

    def _open_renewal(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            client.settimeout(_RENEW_SECONDS)
            with wire.SocketPath(self._folder) as address:
                client.connect(address)
            client.sendall(wire.pack([{"op": "hello", "session": self._session, "listens": False}]))
        except OSError:
            client.close()
            raise
        return client

    def _close_renewal(self) -> None:
        client, self._renewal = self._renewal, None
        if client is not None:
            client.close()


def packed(messages: Sequence[wire.Message | Command]) -> bytes:
    """Encode like the keeper does, at a fraction of the cost."""
    try:
        return wire.framed(msgspec.json.encode(messages, enc_hook=_plain))
    except UnicodeEncodeError:  # a lone surrogate from a path or a variable
        return wire.pack(msgspec.to_builtins(messages, enc_hook=_plain))


def _plain(part: object) -> str | dict[object, object]:
    """Convert types that executors may use in a command and JSON does not have."""
    return dict(part) if isinstance(part, Mapping) else str(part)


def _unpack(body: bytes) -> Any:
    """Decode a message of the keeper; raises ValueError."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError:  # a lone surrogate, or not JSON
        return json.loads(body)
