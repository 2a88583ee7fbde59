"""The real system under measurement: PostgreSQL as durable as in production, a server process, agents.

Everything lives in a temporary folder and on the loopback address, and ends with this process however that
ends: `with` blocks stop it in order, and the kernel stops it if we are killed.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import urlsplit

import psutil
import psycopg
from psycopg import sql

from hetuflow_core.client import Hetuflow
from hetuflow_core.durations import format_duration
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_server.embedded import EmbeddedPostgres
from hetuflow_server.embedded.spawning import die_with_parent
from hetuflow_server.postgres.partitions import days_wanted
from hetuflow_server.upkeep.partitions_store import HISTORY, LOG_CHUNKS, LOG_LENGTHS, TASKS

T = TypeVar("T")

_START_SECONDS = 60.0
_STOP_SECONDS = 30.0
_COMMAND_SECONDS = 300.0
_REST_SECONDS = 60.0
_TAIL_LINES = 15
_REPOSITORY = Path(__file__).resolve().parent.parent
# Given to the server too, so that both know what is complete.
_PARTITIONS_AHEAD = timedelta(days=7)


class NotStarted(Exception):
    """A part of the system did not come up; the message holds the end of its log."""


class System:
    """One server on one durable PostgreSQL; agents are added by whoever measures with them."""

    def __init__(self) -> None:
        self._stack = ExitStack()
        self._folder = Path()
        self._database_url = ""
        self.url = ""
        self.server_pid = 0
        self.api_key = ""
        self.agent_token = ""
        # Of figures, as long as they are there.
        self.databases: dict[str, str] = {}

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._folder = stack.enter_context(_temporary_folder())
            self._postgres = EmbeddedPostgres(self._folder / "postgres")
            stack.callback(self._postgres.destroy)
            self._postgres.start_blocking()
            self._database_url = self._postgres.url
            self._run("db", "upgrade")
            self.api_key = self._run("key", "create", "--role", "admin", "-q")
            self.agent_token = self._run("agent", "token", "create", "-q")
            server = stack.enter_context(self._process("server", ["-m", "hetuflow_server", "server"]))
            self.server_pid = server.pid
            self.url = server.await_log("listening")["url"]
            wait_until(self._partitioned, what="Partitions were not made", log_tail=server.log_tail)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    @property
    def folder(self) -> Path:
        return self._folder

    @property
    def address(self) -> tuple[str, int]:
        parts = urlsplit(self.url)
        return parts.hostname or "", parts.port or 0

    def cpu_seconds(self) -> tuple[float, float]:
        """What the server and PostgreSQL with all its sessions have used of the processors so far."""
        return self.process_seconds(self.server_pid), self.database_cpu_seconds()

    @staticmethod
    def process_seconds(pid: int) -> float:
        """Of all threads, by the scheduler's own count, finer than clock ticks; 0 for one that is gone."""
        try:
            threads = list((Path("/proc") / str(pid) / "task").iterdir())
            return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
        except OSError:
            return 0.0

    @property
    def database_url(self) -> str:
        return self._database_url

    def client(self) -> Hetuflow:
        return Hetuflow(self.url, self.api_key)

    def add_job(self, name: str, command: list[str]) -> str:
        """Apply a job of the default namespace and return its id."""
        return self.apply_job({"kind": "job", "name": name, "run": {"command": command}})

    def apply_job(self, document: dict[str, Any]) -> str:
        with self.client() as hetuflow:
            hetuflow.apply([document])
            return str(hetuflow.job("default", document["name"]).id)

    def empty_database(self, name: str) -> str:
        """Make a database in the same cluster; return its address."""
        with psycopg.connect(self._database_url, autocommit=True) as connection:
            connection.execute(sql.SQL("CREATE DATABASE {}").format(sql.Identifier(name)))
        return self._postgres.url_of(name)

    def migrated_database(self, name: str) -> str:
        """Make a database of the same schema, with no server; return its address."""
        url = self.empty_database(name)
        self._run("db", "upgrade", database_url=url)
        self.databases[name] = url
        return url

    def drop_database(self, name: str) -> None:
        """Take away one that was made for a figure: its upkeep would disturb the figures after it."""
        self.databases.pop(name, None)
        with psycopg.connect(self._database_url, autocommit=True) as connection:
            connection.execute(sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name)))

    def _partitioned(self) -> bool:
        """Whether the server has made its partitions ahead, which only its first seconds are busy with."""
        last_day = days_wanted(SystemClock().now(), _PARTITIONS_AHEAD)[-1]
        names = [spec.partition(last_day) for spec in (TASKS, HISTORY, LOG_LENGTHS, LOG_CHUNKS)]
        with psycopg.connect(self._database_url) as connection:
            row = connection.execute(
                "SELECT count(*) FROM pg_inherits JOIN pg_class ON oid = inhrelid WHERE relname = ANY(%s)",
                [names],
            ).fetchone()
        return row == (len(names),)

    def database_cpu_seconds(self) -> float:
        """What PostgreSQL has used so far, sessions that have ended included."""
        postmaster = psutil.Process(self._postgres.pid)
        while True:
            ended = postmaster.cpu_times()[2:4]
            living = sum(map(self.process_seconds, [postmaster.pid, *_children(postmaster.pid)]))
            # What ended meanwhile would be counted by neither, and a later reading be less than this one.
            if postmaster.cpu_times()[2:4] == ended:
                return sum(ended) + living

    def server_errors(self) -> str:
        """What the server's log says went wrong, for a measurement that met it."""
        lines = (self._folder / "server.log").read_text(errors="replace").splitlines()
        return "\n".join(
            [line for line in lines if '"level":"error"' in line.replace(" ", "")][-_TAIL_LINES:]
        )

    def come_to_rest(self, seconds: float = _REST_SECONDS) -> bool:
        """Have PostgreSQL write and clean up what came before; whether it had come to its end by then.

        The next figure would be measured beside the checkpoint and the vacuum of the one before.
        """
        working = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'autovacuum worker'"
        deadline = time.monotonic() + seconds
        with psycopg.connect(self._database_url, autocommit=True) as connection:
            connection.execute("CHECKPOINT")
            while connection.execute(working).fetchone() != (0,):
                if time.monotonic() > deadline:
                    return False
                time.sleep(0.1)
        return True

    def await_idle(self, seconds: float) -> None:
        """Wait until nothing is queued or running."""

        def idle() -> bool:
            row = connection.execute("SELECT EXISTS (SELECT FROM sched_task_instance)").fetchone()
            return row == (False,)

        with psycopg.connect(self._database_url, autocommit=True) as connection:
            wait_until(idle, what="The queue did not become empty", log_tail=str, seconds=seconds)

    @contextmanager
    def agent(
        self, name: str, *, slots: int | None = None, python_modules: str | None = None
    ) -> Iterator[int]:
        """Run a real agent until the block ends; the block begins when it takes work, with its slots."""
        settings = {
            "HETUFLOW_AGENT__NAME": name,
            "HETUFLOW_AGENT__SERVER_URL": self.url,
            "HETUFLOW_AGENT__TOKEN": self.agent_token,
            "HETUFLOW_AGENT__DATA_DIR": str(self._folder / name),
        }
        if slots is not None:
            settings["HETUFLOW_AGENT__SLOTS"] = str(slots)
        if python_modules is not None:
            settings["HETUFLOW_AGENT__PYTHON_MODULES"] = python_modules
            settings["PYTHONPATH"] = str(_REPOSITORY)
        with self._process(name, ["-m", "hetuflow_agent"], settings) as agent:
            with psycopg.connect(self._database_url, autocommit=True) as connection:
                slots = wait_until(
                    lambda: _slots_of(connection, name),
                    what=f"The agent {name} did not register",
                    log_tail=agent.log_tail,
                )
            yield slots

    @contextmanager
    def another_server(self) -> Iterator[float]:
        """Run one more server on the same database; gives the seconds until it said it was listening."""
        began = time.perf_counter()
        with self._process(f"server-{time.monotonic_ns()}", ["-m", "hetuflow_server", "server"]) as server:
            server.await_log("listening")
            yield time.perf_counter() - began

    def agent_pid(self, name: str) -> int:
        """The process of a running agent."""
        return int((self._folder / name / "lock").read_text())

    def agent_cpu_seconds(self, name: str) -> tuple[float, float, float]:
        """What a running agent, its keeper, and the commands that have ended have used so far."""
        agent = self.agent_pid(name)
        (keeper,) = psutil.Process(agent).children()
        commands = keeper.cpu_times()
        return (
            self.process_seconds(agent),
            self.process_seconds(keeper.pid),
            commands.children_user + commands.children_system,
        )

    def _run(self, *arguments: str, database_url: str | None = None) -> str:
        done = subprocess.run(
            [sys.executable, "-m", "hetuflow_server", *arguments],
            env=self._environment({}, database_url),
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=_COMMAND_SECONDS,
            check=False,
        )
        if done.returncode != 0:
            raise NotStarted(f"`hetuflow {' '.join(arguments)}` failed:\n{done.stderr}")
        return done.stdout.strip()

    @contextmanager
    def _process(
        self, name: str, arguments: list[str], settings: Mapping[str, str] | None = None
    ) -> Iterator[Process]:
        process = Process(
            [sys.executable, *arguments], self._environment(settings or {}), self._folder, f"{name}.log"
        )
        try:
            yield process
        finally:
            process.stop()

    def _environment(self, settings: Mapping[str, str], database_url: str | None = None) -> dict[str, str]:
        """Ours without any setting of Hetuflow's: whatever is not named here is measured as it is shipped."""
        kept = {name: value for name, value in os.environ.items() if not name.startswith("HETUFLOW_")}
        server = {
            "HETUFLOW_DATABASE__URL": database_url or self._database_url,
            "HETUFLOW_SERVER__SECRET_KEY": "only-for-this-run-" * 3,
            "HETUFLOW_SERVER__PORT": "0",
            "HETUFLOW_RETENTION__PARTITION_AHEAD": format_duration(_PARTITIONS_AHEAD),
            # Nothing measured here is about cutting logs.
            "HETUFLOW_RETENTION__LOG_CAP": "65536",
        }
        return kept | (dict(settings) or server) | {"HETUFLOW_LOG__FORMAT": "json"}


class Process:
    """A program of ours with its log in a file, in a session of its own: Ctrl-C is for us to pass on."""

    def __init__(self, argv: list[str], environment: Mapping[str, str], folder: Path, log_name: str) -> None:
        self._log = folder / log_name
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(
                argv,
                env=dict(environment),
                cwd=folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                preexec_fn=die_with_parent(signal.SIGTERM),  # noqa: PLW1509  takes no lock, see there
            )

    @property
    def pid(self) -> int:
        return self._process.pid

    def await_log(self, event: str) -> dict[str, Any]:
        def find() -> dict[str, Any] | None:
            if self._process.poll() is not None:
                raise NotStarted(f"{self._log.stem} ended before it said {event!r}:\n{self.log_tail()}")
            lines = [json.loads(line) for line in self._log.read_text().splitlines() if line.startswith("{")]
            return next((line for line in lines if line.get("event") == event), None)

        return wait_until(find, what=f"{self._log.stem} did not say {event!r}", log_tail=self.log_tail) or {}

    def log_tail(self) -> str:
        return "\n".join(self._log.read_text(errors="replace").splitlines()[-_TAIL_LINES:])

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def _slots_of(connection: psycopg.Connection, name: str) -> int:
    """0 until it is there; the REST API has it on some page only, among thousands."""
    row = connection.execute(
        "SELECT slots FROM sched_agent WHERE name = %s AND status = 'online'", [name]
    ).fetchone()
    return row[0] if row else 0


def _children(pid: int) -> list[int]:
    listed = (Path("/proc") / str(pid) / "task" / str(pid) / "children").read_text()
    return [int(child) for child in listed.split()]


def wait_until(
    look: Callable[[], T], *, what: str, log_tail: Callable[[], str], seconds: float = _START_SECONDS
) -> T:
    """The first truthy answer of `look`."""
    deadline = time.monotonic() + seconds
    while not (answer := look()):
        if time.monotonic() > deadline:
            raise NotStarted(f"{what} within {seconds:g} seconds:\n{log_tail()}")
        time.sleep(0.02)
    return answer


@contextmanager
def _temporary_folder() -> Iterator[Path]:
    """A folder on a disk: in memory fsync costs nothing, and the figures would be too good to be true."""
    folder = Path(tempfile.mkdtemp(prefix="hetuflow-bench-"))
    if os.geteuid() == 0:
        folder.chmod(0o755)  # for the account that root lends to PostgreSQL
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)
