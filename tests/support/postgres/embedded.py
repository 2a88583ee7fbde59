"""Folders and processes for the tests of the embedded PostgreSQL."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import psycopg
import pytest

from hetuflow_server.embedded import EmbeddedPostgres
from hetuflow_server.embedded.leftover_processes import server_processes
from tests.support.postgres.temporary_cluster import SETTINGS, bases
from tests.support.waiting import wait_until

PROJECT = Path(__file__).parents[3]


def quick(data_dir: Path, **options: Any) -> EmbeddedPostgres:
    """An embedded PostgreSQL that does not wait for disks."""
    return EmbeddedPostgres(data_dir, settings=SETTINGS, **options)


def run_sql(url: str, statement: str) -> list[tuple[Any, ...]]:
    with psycopg.connect(url, autocommit=True) as connection:
        cursor = connection.execute(statement)
        return cursor.fetchall() if cursor.description else []


class Holder:
    """Another process that holds an embedded PostgreSQL."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process

    def report(self) -> dict[str, Any]:
        """What it printed when the server was ready or had failed."""
        assert self.process.stdout is not None
        answer: dict[str, Any] = json.loads(self.process.stdout.readline())
        return answer

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def finish(self) -> int:
        assert self.process.stdin is not None
        self.process.stdin.close()
        return self.process.wait(timeout=30)


@contextmanager
def holding(data_dir: Path, *options: str) -> Iterator[Holder]:
    process = subprocess.Popen(
        [sys.executable, "-m", "tests.support.postgres.postgres_process", str(data_dir), *options],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        cwd=PROJECT,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
        start_new_session=True,
    )
    holder = Holder(process)
    try:
        yield holder
    finally:
        holder.kill()
        wait_until(
            lambda: not server_processes(data_dir / "pgdata"), timeout=30, what="the end of the server"
        )
        for stream in (process.stdin, process.stdout):
            assert stream is not None
            stream.close()


@pytest.fixture
def reachable_place() -> Iterator[Path]:
    """A folder that the account root lends to PostgreSQL can enter; pytest's own are closed to it."""
    with temporary_folder() as folder:
        yield folder


@pytest.fixture
def new_cluster_dir(reachable_place: Path) -> Path:
    """A data directory that does not exist yet."""
    return reachable_place / "new"


@pytest.fixture
def made_cluster_dir(reachable_place: Path, _first_cluster_dir: Path) -> Path:
    """A data directory with a complete cluster that is not running."""
    folder = reachable_place / "made"
    shutil.copytree(_first_cluster_dir, folder, symlinks=True)
    return folder


@pytest.fixture(scope="session")
def _first_cluster_dir() -> Iterator[Path]:
    with temporary_folder() as folder:
        with quick(folder / "first"):
            pass
        yield folder / "first"


@contextmanager
def temporary_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(prefix="hetuflow-embedded-", dir=bases()[0]))
    if os.geteuid() == 0:
        folder.chmod(0o755)
    yield folder
    # A server or initdb that is about to end may still write a file into a folder that is being emptied.
    wait_until(lambda: _removed(folder), what="the end of all writing")


def _removed(folder: Path) -> bool:
    shutil.rmtree(folder, ignore_errors=True)
    return not folder.exists()
