"""Logs of daemons on file systems that punch no holes: they roll on, and end nobody."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import pytest
import zstandard

from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.keeper.limits import written
from hetuflow_agent.keeper.task import Spec
from hetuflow_agent.logs import holes
from hetuflow_agent.logs.holes import STEP, gives_room_back, punch, roll_on, step_within
from hetuflow_agent.logs.masking import REACH
from hetuflow_agent.logs.tail import ClaimLog
from hetuflow_core.messages import LogOutcome, LogResult

LIMIT = 1024 * 1024
LINE = 64


@pytest.fixture(params=["a file system of its own", "punching that fails"])
def folder(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where no holes can be punched: as the kernel has it, and as it counts blocks elsewhere."""
    gives_room_back.cache_clear()
    if request.param == "punching that fails":
        monkeypatch.setattr(holes, "_fallocate", lambda *_: False)
        yield tmp_path
    else:
        command = ["mount", "-t", "ramfs", "none", str(tmp_path)]
        if os.geteuid() != 0 or subprocess.run(command, check=False, capture_output=True).returncode:
            pytest.skip("nothing may be mounted here")
        yield tmp_path
        subprocess.run(["umount", "-l", str(tmp_path)], check=True)
    gives_room_back.cache_clear()


def daemon_log(folder: Path, *, rolling: bool = True) -> ClaimLog:
    directory = ClaimDirectory(folder / "claim")
    directory.make()
    step = step_within(LIMIT) if rolling else None
    return ClaimLog(uuid4(), uuid4(), directory, rolling_step=step)


def spec_of(log: ClaimLog) -> Spec:
    """As the keeper looks at it."""
    stdout, stderr = (log.directory.at(name) for name in ("stdout", "stderr"))
    return Spec("k", ["x"], "/", {}, stdout, stderr, "M=1", output_limit=LIMIT, rolling=True)


def lines(first: int, count: int) -> bytes:
    return b"".join(f"{number:{LINE - 1}d}\n".encode() for number in range(first, first + count))


def ship(log: ClaimLog) -> bytes:
    """To a server that takes everything."""
    got = b""
    while chunks := log.chunks(1024 * 1024):
        for chunk in chunks:
            assert chunk.offset == log.streams[chunk.stream].offset
            got += zstandard.decompress(chunk.data)
            log.apply(chunk, LogResult(chunk.instance_id, chunk.stream, LogOutcome.APPENDED, 0))
    return got


def test_ten_times_the_limit_is_shipped_whole_and_never_takes_more_than_the_limit(folder: Path) -> None:
    """Written through one descriptor that appends, as a daemon has it."""
    log = daemon_log(folder)
    assert not punch(log.directory.at("stdout"), 0, STEP)
    spec, got, most, each = spec_of(log), b"", 0, 4096
    with Path(spec.stdout).open("ab", buffering=0) as file:
        for first in range(0, 10 * LIMIT // LINE, each):
            file.write(lines(first, each))
            got += ship(log)
            most = max(most, written(spec))
    assert got == lines(0, 10 * LIMIT // LINE)
    assert Path(spec.stdout).stat().st_size == 10 * LIMIT
    assert most < LIMIT
    assert gives_room_back(str(folder))


def test_what_is_not_shipped_yet_stays_where_it_was(folder: Path) -> None:
    log = daemon_log(folder)
    tail = log.streams["stdout"]
    with Path(tail.path).open("ab", buffering=0) as file:
        file.write(lines(0, 16_384))
        tail.offset = 8_192 * LINE
        tail.moved()
        assert tail.hole == tail.offset - REACH
        file.write(lines(16_384, 16))
    assert Path(tail.path).read_bytes()[: tail.hole] == bytes(tail.hole)
    assert tail.read(STEP) == lines(8_192, 8_192 + 16)


def test_more_than_is_held_in_memory_waits_until_it_is_shipped(folder: Path) -> None:
    path = folder / "log"
    path.write_bytes(lines(0, 65_536))
    assert not roll_on(str(path), 1024 * 1024)
    assert path.read_bytes() == lines(0, 65_536)
    assert roll_on(str(path), 3 * 1024 * 1024)
    assert path.read_bytes() == bytes(3 * 1024 * 1024) + lines(49_152, 16_384)


def test_a_log_that_ends_is_never_cut(folder: Path) -> None:
    log = daemon_log(folder, rolling=False)
    tail = log.streams["stdout"]
    Path(tail.path).write_bytes(lines(0, 2 * STEP // LINE))
    tail.offset = 2 * STEP
    tail.moved()
    assert Path(tail.path).read_bytes() == lines(0, 2 * STEP // LINE)


def test_where_nothing_gives_room_back_that_is_known(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    gives_room_back.cache_clear()
    monkeypatch.setattr(holes, "_fallocate", lambda *_: False)
    monkeypatch.setattr(holes, "roll_on", lambda *_: False)
    assert not gives_room_back(str(tmp_path))
    gives_room_back.cache_clear()


@pytest.mark.parametrize(
    ("limit", "step"), [(None, STEP), (1024**3, STEP), (LIMIT, LIMIT // 4), (1024, 64 * 1024)]
)
def test_steps_fit_into_the_limit(limit: int | None, step: int) -> None:
    assert step_within(limit) == step


def test_a_log_of_which_all_was_shipped_keeps_its_length_when_it_is_rolled_on(tmp_path: Path) -> None:
    """Whoever writes goes on at its end, and offsets stay what they are."""
    path = tmp_path / "log"
    path.write_bytes(b"x" * 1_000)
    assert roll_on(str(path), 1_000)
    assert path.read_bytes() == bytes(1_000)
