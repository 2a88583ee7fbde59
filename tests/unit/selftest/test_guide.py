"""The guide's page names what there is, and nothing else."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from hetuflow_selftest.cli import selftest
from hetuflow_selftest.nemesis.faults import FAULTS
from hetuflow_selftest.report.text import repeat_command
from hetuflow_selftest.settings import Bounds, RunSettings, quick

PAGE = (Path(__file__).parents[3] / "docs/howto/selftest.md").read_text(encoding="utf-8")


def named_in(heading: str) -> set[str]:
    """What the first column of the first table below this heading names."""
    table = PAGE.split(f"{heading}\n", 1)[1].split("|---|---|\n", 1)[1].split("\n\n", 1)[0]
    return {name for row in table.splitlines() for name in re.findall(r"`([a-z-]+)", row.split("|")[1])}


def test_every_fault_is_explained() -> None:
    assert named_in("## What happens") == set(FAULTS)


def test_every_option_is_explained() -> None:
    own = {option.opts[0] for option in selftest.params}
    assert named_in("# Self-test") == own - {"--color", "--debug", "--help", "-h"}


def test_a_run_is_repeated_with_the_options_it_was_told() -> None:
    everything = tuple(sorted(FAULTS))
    assert repeat_command(RunSettings(7, everything)) == "hetuflow selftest --seed 7"
    told = replace(
        quick(7, ("kill-leader",)),
        network="proxies",
        rate=0.5,
        bounds=replace(quick(7, ()).bounds, calm_latency=2.0),
    )
    assert repeat_command(told) == (
        "hetuflow selftest --seed 7 --quick --network proxies --rate 0.5 --calm-latency 2.0"
        " --fault kill-leader"
    )
    assert "--recovery 1.0" in repeat_command(RunSettings(7, everything, bounds=Bounds(recovery=1.0)))
