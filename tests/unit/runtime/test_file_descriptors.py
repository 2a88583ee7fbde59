"""A process may have as many connections as its host lets it, and says when that is few."""

from __future__ import annotations

import resource
import subprocess
import sys

import pytest

_PROGRAM = """
import resource
from hetuflow_core.runtime.file_descriptors import raise_descriptor_limit
from hetuflow_server.http.listening import descriptor_note
print(raise_descriptor_limit(), *resource.getrlimit(resource.RLIMIT_NOFILE))
print(descriptor_note())
"""


def limited(soft: int, hard: int) -> list[str]:
    """What the program prints in a process with these limits."""
    return subprocess.run(
        [sys.executable, "-c", _PROGRAM],
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard)),
        capture_output=True,
        text=True,
        check=True,
        timeout=120,
    ).stdout.splitlines()


def test_the_limit_is_raised_as_far_as_it_goes_and_few_is_told() -> None:
    limits, note = limited(256, 900)
    assert limits == "900 900 900"
    assert "about 700 agents" in note
    assert "LimitNOFILE" in note


def test_enough_is_not_talked_of() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if hard != resource.RLIM_INFINITY and hard < 12_000:
        pytest.skip("this host does not allow so many")
    limits, note = limited(256, 12_000)
    assert (limits, note) == ("12000 12000 12000", "None")
