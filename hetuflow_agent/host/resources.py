"""What this host has for tasks that ask for resources: measured, unless the settings say otherwise."""

from __future__ import annotations

import os
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Final

import psutil

from hetuflow_agent.settings import parse_resources
from hetuflow_core.placement import Resources

_CGROUP: Final = Path("/sys/fs/cgroup")


def host_resources(given: Mapping[str, str], cgroup: Path = _CGROUP) -> Resources:
    """What is not given is what this process may use: of the host, or of the container it is in.

    Graphics cards are not counted: say how many there are.
    """
    said = parse_resources(given)
    return Resources(
        cpu=said["cpu"] if "cpu" in said else _processors(cgroup),
        memory=int(said["memory"]) if "memory" in said else _memory(cgroup),
        gpu=int(said.get("gpu", 0)),
    )


def _processors(cgroup: Path) -> float:
    usable = float(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1)
    with suppress(OSError, ValueError):
        quota, period = (cgroup / "cpu.max").read_text(encoding="ascii").split()
        return min(usable, round(int(quota) / int(period), 3))
    return usable


def _memory(cgroup: Path) -> int:
    total = int(psutil.virtual_memory().total)
    with suppress(OSError, ValueError):
        return min(total, int((cgroup / "memory.max").read_text(encoding="ascii")))
    return total
