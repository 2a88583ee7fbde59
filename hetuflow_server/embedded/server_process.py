"""One life of the server: started directly, watched until it is ready, ended by ever harder means."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

from hetuflow_core.errors import DatabaseUnreachable, PortTaken
from hetuflow_server.embedded.binaries import Binaries
from hetuflow_server.embedded.directory import DISK_FULL_WORDS, ClusterDirectory, disk_full, give_to_owner
from hetuflow_server.embedded.leftover_processes import POLL_INTERVAL
from hetuflow_server.embedded.server_log import ServerLog
from hetuflow_server.embedded.spawning import spawn

HOST = "127.0.0.1"
Setting = str | int | float | bool

_PORT_TAKEN_WORDS = "Address already in use"
_PID_LINE, _STATUS_LINE = 0, 7  # of postmaster.pid, as pg_ctl reads it
_AFTER_FAST_SHUTDOWN = ((signal.SIGQUIT, 5.0), (signal.SIGKILL, 5.0))


class ServerProcess:
    def __init__(
        self,
        directory: ClusterDirectory,
        binaries: Binaries,
        *,
        host: str,
        port: int,
        settings: Mapping[str, Setting],
        death_signal: signal.Signals | None,
    ) -> None:
        self.port = port
        self._directory = directory
        self._log = ServerLog(directory.log_file)
        # TCP only: a socket file adds a length limit, a folder to guard and lock files that outlive a kill.
        fixed: dict[str, Setting] = {"listen_addresses": host, "port": port, "unix_socket_directories": ""}
        if host != HOST:
            fixed["hba_file"] = str(_admission(directory))
        argv = [str(binaries.postgres), "-D", str(directory.pgdata)]
        for name, value in {**settings, **fixed}.items():
            argv += ["-c", f"{name}={_spelled(value)}"]
        with self._log.open() as output:
            self._process: subprocess.Popen[bytes] = spawn(
                argv, account=directory.account, output=output, death_signal=death_signal
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def running(self) -> bool:
        return self._process.poll() is None

    def becoming_ready(self, patience: float) -> Iterator[float]:
        deadline = time.monotonic() + patience
        while not self._says_ready():
            if not self.running:
                raise self._exit_reason()
            if time.monotonic() > deadline:
                raise DatabaseUnreachable(
                    f"The embedded PostgreSQL did not get ready within {patience:g} seconds "
                    f"({self._log.last_words()}): see {self._log.path}."
                )
            yield POLL_INTERVAL

    def ending(self, patience: float) -> Iterator[float]:
        """SIGINT is a fast shutdown: connections are cut, nothing is lost."""
        for wish, wait in ((signal.SIGINT, patience), *_AFTER_FAST_SHUTDOWN):
            self._process.send_signal(wish)
            deadline = time.monotonic() + wait
            while self.running and time.monotonic() < deadline:
                yield POLL_INTERVAL
            if not self.running:
                return

    def trim_log(self) -> None:
        self._log.trim()

    def _says_ready(self) -> bool:
        try:
            lines = (self._directory.pgdata / "postmaster.pid").read_text().splitlines()
        except FileNotFoundError:
            return False
        return (
            len(lines) > _STATUS_LINE
            and lines[_PID_LINE].strip() == str(self.pid)
            and lines[_STATUS_LINE].strip() == "ready"
        )

    def _exit_reason(self) -> Exception:
        said = self._log.since_open()
        if _PORT_TAKEN_WORDS in said:
            return PortTaken(
                f"Port {self.port} on {HOST} is taken by another program: "
                "stop that one or choose another port."
            )
        if DISK_FULL_WORDS in said:
            return disk_full(self._directory.root)
        return DatabaseUnreachable(
            f"The embedded PostgreSQL ended while starting ({self._log.last_words()}): see {self._log.path}."
        )


def _admission(directory: ClusterDirectory) -> Path:
    """Write down that whoever knows the password may come from elsewhere; a new cluster forbids it."""
    with directory.admission_file.open("w") as file:
        file.write("host all all all scram-sha-256\n")
        file.flush()
        os.fchmod(file.fileno(), 0o644)
        give_to_owner(file.fileno(), directory.root)
    return directory.admission_file


def free_port() -> int:
    """Free a moment ago; whoever uses it must be ready to ask again."""
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        port: int = probe.getsockname()[1]
        return port


def _spelled(value: Setting) -> str:
    if isinstance(value, bool):
        return "on" if value else "off"
    return str(value)
