"""The embedded PostgreSQL starts, serves, stops, and is gone with the process that held it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import socket
import stat
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import psycopg
import pytest

from hetuflow_core.errors import HetuflowError, PortTaken
from hetuflow_server.embedded import Binaries, EmbeddedPostgres, cluster as cluster_module
from hetuflow_server.embedded.account import choose_account
from hetuflow_server.embedded.binaries import find_binaries, system_folders, usable
from hetuflow_server.embedded.leftover_processes import server_processes
from hetuflow_server.embedded.server_log import KEPT_BYTES
from hetuflow_server.embedded.server_process import free_port
from tests.support.postgres.embedded import holding, quick, run_sql
from tests.support.waiting import wait_until, wait_until_async


def available() -> Iterator[object]:
    """The binaries that users get by default, and every PostgreSQL of the system."""
    yield pytest.param(None, id="default")
    found = usable(system_folders())
    for binaries in found:
        yield pytest.param(binaries, id=f"system-{binaries.major}")
    if not found:
        yield pytest.param(
            None, id="system", marks=pytest.mark.skip(reason="no PostgreSQL in /usr/lib/postgresql")
        )


@pytest.mark.parametrize("binaries", list(available()))
def test_data_survive_a_restart_with_every_kind_of_binaries(
    new_cluster_dir: Path, binaries: Binaries | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("TZ", "Asia/Kathmandu")
    monkeypatch.setenv("PGPORT", "1")
    monkeypatch.setenv("LC_ALL", "de_DE.UTF-8")
    cluster = EmbeddedPostgres(
        new_cluster_dir, binaries=binaries
    )  # with the durable settings of `hetuflow dev`
    with cluster:
        assert run_sql(cluster.url, "CREATE TABLE kept AS SELECT 'ß'::text AS word") == []
        assert run_sql(cluster.url, "SELECT current_database(), current_user") == [("hetuflow", "hetuflow")]
        assert run_sql(cluster.url, "SHOW fsync") == [("on",)]
        assert run_sql(cluster.url, "SHOW timezone") == [("UTC",)]
        assert run_sql(cluster.url, "SHOW server_encoding") == [("UTF8",)]
        major = (binaries or find_binaries()).major
        assert run_sql(cluster.url, "SHOW server_version_num")[0][0].startswith(str(major))
    assert not cluster.running
    assert server_processes(cluster.cluster_dir / "pgdata") == []
    with EmbeddedPostgres(new_cluster_dir, binaries=binaries) as again:
        assert run_sql(again.url, "SELECT word FROM kept") == [("ß",)]


async def test_an_event_loop_can_start_and_stop_it(made_cluster_dir: Path) -> None:
    cluster = quick(made_cluster_dir)
    await cluster.start()
    await cluster.start()  # no second server
    assert run_sql(cluster.url, "SELECT 1") == [(1,)]
    await cluster.stop()
    assert not cluster.running
    await cluster.stop()


async def test_a_cancelled_start_leaves_nothing_behind(new_cluster_dir: Path) -> None:
    starting = asyncio.create_task(quick(new_cluster_dir).start())

    def drafts() -> list[Path]:
        return list(new_cluster_dir.glob("initdb-*/pgdata"))

    await wait_until_async(drafts, what="a half-made database")
    starting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await starting
    assert drafts() == []
    with quick(new_cluster_dir) as cluster:  # nor the lock
        assert run_sql(cluster.url, "SELECT 1") == [(1,)]


def test_the_server_goes_when_its_holder_is_killed(made_cluster_dir: Path) -> None:
    with holding(made_cluster_dir) as holder:
        report = holder.report()
        assert report["pid"] in server_processes(made_cluster_dir / "pgdata")
        holder.kill()
        wait_until(lambda: not server_processes(made_cluster_dir / "pgdata"), what="the end of the server")


def test_the_next_start_works_at_once_after_the_holder_was_killed(made_cluster_dir: Path) -> None:
    with holding(made_cluster_dir) as holder:
        first = holder.report()
        run_sql(first["url"], "CREATE TABLE kept AS SELECT 1 AS n")
        holder.kill()
        with quick(made_cluster_dir) as cluster:
            assert cluster.pid != first["pid"]
            assert run_sql(cluster.url, "SELECT n FROM kept") == [(1,)]


def test_a_killed_server_is_started_again_on_its_port_with_its_data(made_cluster_dir: Path) -> None:
    with EmbeddedPostgres(made_cluster_dir) as cluster:  # with commits that wait for the disk
        url, pid = cluster.url, cluster.pid
        run_sql(url, "CREATE TABLE kept AS SELECT 1 AS n")
        os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not cluster.running, what="the end of the server")
        cluster.start_blocking()
        assert cluster.pid != pid
        assert cluster.url == url
        assert run_sql(url, "SELECT n FROM kept") == [(1,)]


def test_a_backend_that_outlives_its_killed_server_does_not_block_the_next_start(
    made_cluster_dir: Path,
) -> None:
    with quick(made_cluster_dir) as cluster:
        with closing(psycopg.connect(cluster.url, autocommit=True)) as busy:
            backend = busy.info.backend_pid
            # Counting looks at no latch, so this backend does not notice that its server died.
            busy.pgconn.send_query(b"SELECT count(*) FROM generate_series(1, 100000000000) AS n WHERE n < 0")
            wait_until(lambda: _is_active(cluster.url, backend), what="the long statement")
            os.kill(cluster.pid, signal.SIGKILL)
            wait_until(lambda: not cluster.running, what="the end of the server")
            assert backend in server_processes(made_cluster_dir / "pgdata")
            cluster.start_blocking()
            assert backend not in server_processes(made_cluster_dir / "pgdata")
        assert run_sql(cluster.url, "SELECT 1") == [(1,)]


def _is_active(url: str, backend: int) -> bool:
    return run_sql(url, f"SELECT state FROM pg_stat_activity WHERE pid = {backend}") == [("active",)]


def test_a_pid_file_that_names_a_stranger_does_not_block_the_start(made_cluster_dir: Path) -> None:
    """After a reboot or in a container the old pid may be that of any other process of the same user."""
    account = choose_account(None)
    stranger = subprocess.Popen(["sleep", "600"], cwd="/", user=account.uid if account.is_lent else None)
    lines = [
        str(stranger.pid),
        str(made_cluster_dir / "pgdata"),
        "1",
        "5432",
        "",
        "127.0.0.1",
        "0 0",
        "ready",
    ]
    (made_cluster_dir / "pgdata" / "postmaster.pid").write_text("\n".join(lines) + "\n")
    try:
        with quick(made_cluster_dir) as cluster:
            assert run_sql(cluster.url, "SELECT 1") == [(1,)]
    finally:
        stranger.kill()
        stranger.wait()


def test_a_crash_during_the_first_initialisation_does_not_block_the_next_start(new_cluster_dir: Path) -> None:
    with holding(new_cluster_dir) as holder:
        wait_until(lambda: list(new_cluster_dir.glob("initdb-*/pgdata/base")), what="a half-made database")
        holder.kill()
    assert not (new_cluster_dir / "pgdata").exists()
    with quick(new_cluster_dir) as cluster:
        assert run_sql(cluster.url, "SELECT 1") == [(1,)]
    assert list(new_cluster_dir.glob("initdb-*")) == []


def test_the_terminal_cannot_interrupt_the_server(made_cluster_dir: Path) -> None:
    with holding(made_cluster_dir) as holder:
        report = holder.report()
        assert os.getsid(report["pid"]) != os.getsid(holder.process.pid)
        os.killpg(holder.process.pid, signal.SIGINT)
        assert run_sql(report["url"], "SELECT 1") == [(1,)]
        assert holder.finish() == 0


def test_only_the_password_opens_the_door(made_cluster_dir: Path) -> None:
    with quick(made_cluster_dir) as cluster:
        password = (made_cluster_dir / "password").read_text().strip()
        assert stat.S_IMODE((made_cluster_dir / "password").stat().st_mode) == 0o600
        for url in (cluster.url.replace(password, "wrong"), cluster.url.replace(f":{password}", "")):
            with pytest.raises(psycopg.OperationalError, match="password"):
                psycopg.connect(url)
        rules = (made_cluster_dir / "pgdata" / "pg_hba.conf").read_text().splitlines()
        methods = {rule.split()[-1] for rule in rules if rule and not rule.startswith("#")}
        assert methods == {"scram-sha-256"}


def test_a_port_lost_to_another_program_is_replaced(
    made_cluster_dir: Path, taken_port: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    offers = iter([taken_port])
    monkeypatch.setattr(cluster_module, "free_port", lambda: next(offers, None) or free_port())
    with quick(made_cluster_dir) as cluster:
        assert f":{taken_port}/" not in cluster.url
        assert run_sql(cluster.url, "SELECT 1") == [(1,)]
    assert next(offers, None) is None


def test_a_wanted_port_that_is_taken_is_an_error(made_cluster_dir: Path, taken_port: int) -> None:
    with pytest.raises(PortTaken, match=f"Port {taken_port} on 127.0.0.1 is taken"):
        quick(made_cluster_dir, port=taken_port).start_blocking()
    quick(made_cluster_dir).destroy()  # the lock is free again


def test_starting_from_another_thread_is_refused(made_cluster_dir: Path) -> None:
    """The kernel would end the server together with that thread."""
    caught: list[BaseException] = []

    def start() -> None:
        try:
            quick(made_cluster_dir).start_blocking()
        except RuntimeError as error:
            caught.append(error)

    thread = threading.Thread(target=start)
    thread.start()
    thread.join()
    assert "main thread" in str(caught[0])


def test_an_overgrown_log_is_cut_at_the_start(made_cluster_dir: Path) -> None:
    log = made_cluster_dir / "server.log"
    log.write_bytes(b"x" * (KEPT_BYTES + 1))
    with quick(made_cluster_dir):
        assert log.stat().st_size < KEPT_BYTES / 2
        assert (made_cluster_dir / "server.log.1").stat().st_size == KEPT_BYTES + 1


def test_a_server_that_cannot_start_says_why_and_where_to_look(made_cluster_dir: Path) -> None:
    cluster = EmbeddedPostgres(made_cluster_dir, settings={"shared_buffers": "nonsense"})
    with pytest.raises(
        HetuflowError, match=r"ended while starting \(.*shared_buffers.*\): see .*server\.log"
    ) as caught:
        cluster.start_blocking()
    assert "\n" not in str(caught.value)


def test_a_start_that_takes_too_long_is_given_up(made_cluster_dir: Path) -> None:
    with pytest.raises(HetuflowError, match=r"did not get ready within 0 seconds"):
        quick(made_cluster_dir, start_timeout=0.0).start_blocking()
    assert server_processes(made_cluster_dir / "pgdata") == []


def test_destroy_removes_what_was_made_and_nothing_else(made_cluster_dir: Path) -> None:
    (made_cluster_dir / "notes.txt").write_text("mine")
    with quick(made_cluster_dir) as cluster:
        cluster.destroy()
        assert not cluster.running
    assert [entry.name for entry in made_cluster_dir.iterdir()] == ["notes.txt"]
    shutil.rmtree(made_cluster_dir)


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        port: int = listener.getsockname()[1]
        yield port
