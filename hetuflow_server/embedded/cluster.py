"""One embedded PostgreSQL: started by this process, for this process, gone with it.

Starting and stopping are written once, as generators that yield how long to wait before they go on: `start`
and `stop` wait in an event loop, `start_blocking` and `stop_blocking` in `time.sleep`. Either way everything
is spawned from the calling thread, which must be the main one.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import time
from collections.abc import Generator, Iterator, Mapping
from contextlib import closing
from pathlib import Path
from types import TracebackType
from typing import Self

import psycopg
from psycopg import sql

from hetuflow_core.errors import DatabaseUnreachable, DataDirectoryUnusable, PortTaken
from hetuflow_server.embedded.account_folder import SHELTER, reachable_binaries
from hetuflow_server.embedded.binaries import Binaries, find_binaries
from hetuflow_server.embedded.directory import (
    ClusterDirectory,
    blaming,
    check_version,
    delete_cluster,
    lock_directory,
    open_directory,
    take_ownership,
)
from hetuflow_server.embedded.initdb import ROLE, initialise
from hetuflow_server.embedded.leftover_processes import clear_stale_pid_file, end_survivors
from hetuflow_server.embedded.server_process import HOST, ServerProcess, Setting, free_port

DATABASE = "hetuflow"

_SETTINGS: Mapping[str, Setting] = {
    "cluster_name": "hetuflow",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "log_checkpoints": False,  # two lines every five minutes that nobody here reads
    "jit": False,  # compiling costs more than our short statements could gain
}
_PORT_ATTEMPTS = 10
_CONNECT_TIMEOUT = 10


class EmbeddedPostgres:
    """`settings` are PostgreSQL's own; the port is chosen anew at each start unless one is given."""

    name = "embedded PostgreSQL"

    def __init__(
        self,
        data_dir: Path,
        *,
        binaries: Binaries | None = None,
        settings: Mapping[str, Setting] | None = None,
        host: str = HOST,
        port: int | None = None,
        parent_death: bool = True,
        start_timeout: float = 60.0,
        stop_timeout: float = 30.0,
        shelter: Path = SHELTER,
    ) -> None:
        self.data_dir = data_dir.absolute()
        self._binaries = binaries
        self._settings = {**_SETTINGS, **(settings or {})}
        self._host = host
        self._fixed_port = port
        self._death_signal = signal.SIGINT if parent_death else None
        self._start_timeout = start_timeout
        self._stop_timeout = stop_timeout
        self._shelter = shelter
        self._directory: ClusterDirectory | None = None
        self._lock: int | None = None
        self._server: ServerProcess | None = None
        self._last_port: int | None = None
        self._password = ""

    @property
    def running(self) -> bool:
        """False also when the server ended by itself; `start` then brings it back, on its port if free."""
        return self._server is not None and self._server.running

    @property
    def pid(self) -> int:
        return self._started().pid

    @property
    def url(self) -> str:
        return self.url_of(DATABASE)

    def url_of(self, database: str) -> str:
        return f"postgresql://{ROLE}:{self._password}@{self._host}:{self._started().port}/{database}"

    @property
    def cluster_dir(self) -> Path:
        """Where the files really are: `data_dir`, or a folder in the shelter if that is out of reach."""
        return self._opened().root

    @property
    def log_file(self) -> Path:
        return self._opened().log_file

    async def start(self) -> None:
        await _follow(self._starting())

    async def stop(self) -> None:
        await _follow(self._stopping())

    def start_blocking(self) -> None:
        _follow_blocking(self._starting())

    def stop_blocking(self) -> None:
        _follow_blocking(self._stopping())

    def destroy(self) -> None:
        """Stop, and delete the cluster with all its data."""
        _follow_blocking(self._destroying())

    def trim_log(self) -> None:
        """Cut an overgrown server log; done at each start, and worth doing now and then in a long life."""
        self._started().trim_log()

    def __enter__(self) -> Self:
        self.start_blocking()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop_blocking()

    def _starting(self) -> Generator[float, None, None]:
        if self.running:
            return
        binaries = self._binaries or find_binaries()
        try:
            with blaming(self.data_dir):
                directory = self._claim_directory()
                yield from end_survivors(directory.pgdata)
                binaries = reachable_binaries(binaries, directory.account, self._shelter)
                yield from self._preparing(directory, binaries)
                yield from self._launching(directory, binaries)
            self._ensure_database()
        except BaseException:
            _follow_blocking(self._stopping(patience=0.0))
            raise

    def _claim_directory(self) -> ClusterDirectory:
        self._directory = open_directory(self.data_dir, self._shelter)
        if self._lock is None:  # a server that ended by itself leaves the lock with us
            self._lock = lock_directory(self._directory)
        return self._directory

    def _preparing(self, directory: ClusterDirectory, binaries: Binaries) -> Iterator[float]:
        if not directory.pgdata.exists():
            durable = self._settings.get("fsync", True) not in {False, "off"}
            yield from initialise(directory, binaries, password=secrets.token_urlsafe(24), durable=durable)
        check_version(directory, binaries)
        take_ownership(directory)
        clear_stale_pid_file(directory.pgdata)
        try:
            self._password = directory.password_file.read_text().strip()
        except FileNotFoundError:
            raise DataDirectoryUnusable(
                f"{directory.password_file} is missing: restore it, or move {directory.root} away "
                "to start with an empty database."
            ) from None

    def _launching(self, directory: ClusterDirectory, binaries: Binaries) -> Iterator[float]:
        for _ in range(_PORT_ATTEMPTS):
            port = self._fixed_port or self._last_port or free_port()
            self._server = ServerProcess(
                directory,
                binaries,
                host=self._host,
                port=port,
                settings=self._settings,
                death_signal=self._death_signal,
            )
            try:
                yield from self._server.becoming_ready(self._start_timeout)
            except PortTaken:
                if self._fixed_port:
                    raise
                self._last_port = None
            else:
                self._last_port = port
                return
        raise PortTaken(f"No free port on {HOST} could be had: stop some of the programs that listen there.")

    def _ensure_database(self) -> None:
        """Proves that connections work, and completes a first start."""
        try:
            with psycopg.connect(
                self.url_of("postgres"), autocommit=True, connect_timeout=_CONNECT_TIMEOUT, sslmode="disable"
            ) as connection:
                names = connection.execute("SELECT datname FROM pg_database").fetchall()
                if (DATABASE,) not in names:
                    connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(DATABASE)))
        except psycopg.OperationalError as error:
            reason = str(error).strip().splitlines()[-1]
            raise DatabaseUnreachable(
                f"The embedded PostgreSQL started but refused to serve ({reason}): see {self.log_file}."
            ) from error

    def _stopping(self, patience: float | None = None) -> Generator[float, None, None]:
        if self._server is not None:
            if self._server.running:
                yield from self._server.ending(self._stop_timeout if patience is None else patience)
            yield from end_survivors(self._opened().pgdata)
            self._server = None
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def _destroying(self) -> Generator[float, None, None]:
        yield from self._stopping()
        with blaming(self.data_dir):
            directory = self._claim_directory()
            try:
                yield from end_survivors(directory.pgdata)
                delete_cluster(directory, self.data_dir)
            finally:
                yield from self._stopping()

    def _started(self) -> ServerProcess:
        if self._server is None:
            raise RuntimeError("the embedded PostgreSQL is not started")
        return self._server

    def _opened(self) -> ClusterDirectory:
        if self._directory is None:
            raise RuntimeError("the embedded PostgreSQL was never started")
        return self._directory


async def _follow(steps: Generator[float, None, None]) -> None:
    with closing(steps):
        for delay in steps:
            await asyncio.sleep(delay)


def _follow_blocking(steps: Generator[float, None, None]) -> None:
    with closing(steps):
        for delay in steps:
            time.sleep(delay)
