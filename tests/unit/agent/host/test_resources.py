"""What an agent says it has for tasks that ask for resources."""

from __future__ import annotations

from pathlib import Path

import psutil
import pytest

from hetuflow_agent.host.resources import host_resources
from hetuflow_agent.settings import parse_resources
from hetuflow_core.errors import Invalid
from hetuflow_core.placement import Resources


def test_what_is_given_stands(tmp_path: Path) -> None:
    given = {"cpu": "2.5", "memory": "8Gi", "gpu": "1"}
    assert host_resources(given, tmp_path) == Resources(cpu=2.5, memory=8 << 30, gpu=1)
    assert host_resources({"cpu": "0"}, tmp_path).cpu == 0


def test_what_is_not_given_is_measured(tmp_path: Path) -> None:
    found = host_resources({}, tmp_path)
    assert found.cpu >= 1
    assert found.memory == psutil.virtual_memory().total
    assert found.gpu == 0


def test_a_container_has_what_it_was_given(tmp_path: Path) -> None:
    (tmp_path / "cpu.max").write_text("50000 100000\n")
    (tmp_path / "memory.max").write_text("1048576\n")
    assert host_resources({}, tmp_path) == Resources(cpu=0.5, memory=1 << 20)
    (tmp_path / "cpu.max").write_text("max 100000\n")
    (tmp_path / "memory.max").write_text("max\n")
    assert host_resources({}, tmp_path).memory == psutil.virtual_memory().total


@pytest.mark.parametrize(
    "given", [{"disk": "1"}, {"cpu": "many"}, {"gpu": "0.5"}, {"cpu": "-1"}, {"memory": "x"}]
)
def test_anything_else_is_refused(given: dict[str, str]) -> None:
    with pytest.raises(Invalid):
        parse_resources(given)
