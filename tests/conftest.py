"""Databases for every test that asks for one.

The process that controls the run starts one throw-away PostgreSQL (or uses the server that
HETUFLOW_TEST_DATABASE_URL names), migrates a template database and tells the workers where it is. Each worker
clones the template once and puts the rows back before each test.
"""

from __future__ import annotations

import dataclasses
import itertools
import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.support.postgres.databases import DatabaseServer, RunDatabases
from tests.support.postgres.embedded import (  # noqa: F401 (fixtures)
    _first_cluster_dir,
    made_cluster_dir,
    new_cluster_dir,
    reachable_place,
)
from tests.support.postgres.reset_database import PristineDatabase
from tests.support.processes.guardian import dismiss, guard

# A machine with other things to do is slow at times: how long an example takes proves nothing.
settings.register_profile("hetuflow", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("hetuflow")

_RUN = pytest.StashKey[RunDatabases]()
_WORKER_INPUT = "hetuflow_database_server"
_numbers = itertools.count(1)


def pytest_configure(config: pytest.Config) -> None:
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # A run started in the background inherits a deaf ear for Ctrl-C and would hand it on.
        signal.signal(signal.SIGINT, signal.default_int_handler)
    if not _is_worker(config):
        _keep_bytecode(config.rootpath)
        config.stash[_RUN] = RunDatabases()


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Half as many again as there are processors: tests with real processes wait for much of their time."""
    processors = os.cpu_count() or 1
    return processors + max(1, processors // 2)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """Called by pytest-xdist in the controlling process for each worker it is about to start."""
    node.workerinput[_WORKER_INPUT] = dataclasses.asdict(node.config.stash[_RUN].server())


def pytest_unconfigure(config: pytest.Config) -> None:
    if _RUN in config.stash:
        config.stash[_RUN].close()


@pytest.fixture(scope="session", autouse=True)
def _guardian(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Nothing that tests start outlives the process that runs them."""
    guardian = guard(tmp_path_factory.getbasetemp())
    yield
    dismiss(guardian)


@pytest.fixture(scope="session")
def database_server(request: pytest.FixtureRequest) -> DatabaseServer:
    config = request.config
    if _is_worker(config):
        return DatabaseServer(**config.workerinput[_WORKER_INPUT])  # type: ignore[attr-defined] # set by xdist
    return config.stash[_RUN].server()


@pytest.fixture(scope="session")
def _worker_database(
    database_server: DatabaseServer, request: pytest.FixtureRequest
) -> Iterator[PristineDatabase]:
    database = PristineDatabase(database_server.clone(_worker_name(request.config)))
    yield database
    database.close()  # dropped with the rest of the run


@pytest.fixture
def database_url(_worker_database: PristineDatabase) -> str:
    """A migrated database with the rows of the template, shared by the tests of one worker."""
    _worker_database.reset()
    return _worker_database.url


@pytest.fixture
def fresh_database_url(database_server: DatabaseServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A migrated database for one test alone, for tests that change more than rows."""
    url = database_server.clone(f"{_worker_name(request.config)}_fresh{next(_numbers)}")
    yield url
    database_server.drop(url)


@pytest.fixture
def empty_database_url(database_server: DatabaseServer, request: pytest.FixtureRequest) -> Iterator[str]:
    """A database without any table, for tests of the migrations themselves."""
    url = database_server.create_empty(f"{_worker_name(request.config)}_empty{next(_numbers)}")
    yield url
    database_server.drop(url)


def _keep_bytecode(project: Path) -> None:
    """Compile each module once, not anew for the workers and the hundreds of processes that tests start.

    Where the environment asks for no such files beside the sources, they go where pytest keeps its own.
    """
    if sys.dont_write_bytecode:
        sys.dont_write_bytecode = False
        sys.pycache_prefix = os.environ["PYTHONPYCACHEPREFIX"] = str(project / ".pytest_cache" / "bytecode")
        os.environ.pop("PYTHONDONTWRITEBYTECODE", None)


def _is_worker(config: pytest.Config) -> bool:
    return hasattr(config, "workerinput")


def _worker_name(config: pytest.Config) -> str:
    return str(config.workerinput["workerid"]) if _is_worker(config) else "main"  # type: ignore[attr-defined] # xdist
