"""Where control groups would be made, and what is written into them."""

from __future__ import annotations

from pathlib import Path

import pytest

from hetuflow_agent.keeper.cgroups import Cgroups, base_of, find_own, oom_kills

UNIFIED = "30 23 0:26 / /sys/fs/cgroup rw,nosuid - cgroup2 cgroup2 rw"
HYBRID = """\
31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory
32 30 0:28 / /sys/fs/cgroup/uni\\040fied rw - cgroup2 cgroup2 rw"""


@pytest.mark.parametrize(
    ("mounts", "own", "base"),
    [
        (UNIFIED, "0::/system.slice/agent.service", "/sys/fs/cgroup/system.slice/agent.service"),
        (UNIFIED, "0::/system.slice/agent.service/agent", "/sys/fs/cgroup/system.slice/agent.service"),
        (UNIFIED, "0::/", "/sys/fs/cgroup"),
        (HYBRID, "4:memory:/x\n0::/y", "/sys/fs/cgroup/uni fied/y"),
        (UNIFIED, "0::/../elsewhere", None),
        (UNIFIED, "4:memory:/x", None),
        ("31 30 0:27 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory", "0::/", None),
    ],
)
def test_the_base_is_the_agents_own_group_or_the_one_above(mounts: str, own: str, base: str | None) -> None:
    assert base_of(find_own(mounts, own)) == (None if base is None else Path(base))


def test_kills_for_want_of_memory_are_counted() -> None:
    assert oom_kills("low 0\nhigh 0\nmax 12\noom 3\noom_kill 2\noom_group_kill 1\n") == 2
    assert oom_kills("low 0\n") == 0


def test_a_task_gets_a_group_with_its_limits(tmp_path: Path) -> None:
    """On a folder that only looks like the kernel's: the kernel's own may not be ours to use."""
    cgroups = Cgroups(tmp_path, Path("/data"))
    cgroups.enter()
    assert cgroups.entered
    assert cgroups.controllers == ("memory", "cpu")
    assert cgroups.confine("k", 4711, memory=512 * 1024, cpu=1.5)
    (group,) = tmp_path.glob("hetuflow-*/t-k")
    written = {path.name: path.read_text() for path in group.iterdir()}
    assert written == {
        "memory.max": "524288",
        "memory.swap.max": "0",
        "memory.oom.group": "1",
        "cpu.max": "150000 100000",
        "cgroup.procs": "4711",
    }
    (group / "memory.events").write_text("oom_kill 1\n")
    (group / "memory.peak").write_text("4096\n")
    assert (cgroups.memory_peak("k"), cgroups.memory_peak("unknown")) == (4096, 0)
    assert cgroups.settle("k")


def test_memory_is_not_said_to_be_limited_where_its_controller_is_not_to_be_had(tmp_path: Path) -> None:
    """Whoever hears so limits it by other means."""
    cgroups = Cgroups(tmp_path, Path("/data"))
    cgroups.enter()
    cgroups.controllers = ("cpu",)
    assert not cgroups.confine("k", 4711, memory=512 * 1024, cpu=1.5)
    (group,) = tmp_path.glob("hetuflow-*/t-k")
    assert {path.name for path in group.iterdir()} == {"cpu.max", "cgroup.procs"}


def test_who_must_outlive_the_group_goes_back_to_where_the_keeper_came_from(tmp_path: Path) -> None:
    (tmp_path / "agent").mkdir()
    cgroups = Cgroups(tmp_path / "agent", Path("/data"))
    cgroups.put_back(1)
    assert not (tmp_path / "agent" / "cgroup.procs").exists()  # it has not been anywhere else
    cgroups.enter()
    cgroups.put_back(4711)
    assert (tmp_path / "agent" / "cgroup.procs").read_text() == "4711"
    assert [one.parent for one in tmp_path.rglob("keeper")] == [*tmp_path.glob("hetuflow-*")]


def test_without_groups_nothing_is_promised(tmp_path: Path) -> None:
    cgroups = Cgroups(None, tmp_path)
    cgroups.enter()
    assert not cgroups.entered
    assert not cgroups.confine("k", 1, memory=1, cpu=1.0)
    assert not cgroups.settle("k")
    assert not cgroups.kill_left()
