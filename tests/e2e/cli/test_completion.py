"""Completion behind TAB, in a real bash."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click
import pytest

from hetuflow_server.cli import completion_items
from hetuflow_server.cli.main import hetuflow
from tests.e2e.conftest import System
from tests.support.processes.processes import HETUFLOW, run

ASK = """
set -eu
eval "$(hetuflow completion bash)"
offer() {{
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); COMPREPLY=()
    _hetuflow_completion hetuflow
    echo "$* => ${{COMPREPLY[*]}}"
}}
{asked}
"""


def asked(system: System, folder: Path, *lines: str) -> list[str]:
    """What bash would offer behind each of the lines."""
    program = folder / "hetuflow"
    program.write_text(f'#!/bin/sh\nexec {" ".join(HETUFLOW)} "$@"\n')
    program.chmod(0o755)
    script = ASK.format(asked="\n".join(f"offer hetuflow {line}" for line in lines))
    # The completion script calls the first of its words, whatever that is.
    env = system.environment(PATH=f"{folder}:{Path(sys.executable).parent}:{os.environ['PATH']}")
    shell = run(["bash", "-c", script], env=env)
    assert (shell.returncode, shell.stderr) == (0, ""), shell.stderr
    return [line.partition(" => ")[2] for line in shell.stdout.splitlines()]


def test_bash_offers_commands_options_and_names_of_the_server(system: System, tmp_path: Path) -> None:
    job = system.apply(run={"command": ["true"]}, schedules=[{"name": "nightly", "cron": "0 2 * * *"}])
    offered = asked(
        system,
        tmp_path,
        "whoa",
        "job ver",
        "job run x --logs --on-interrupt ''",
        f"job run {job.name[:8]}",
        "-n defa",
        f"schedule next {job.name}/",
    )
    commands, verbs, choices, jobs, namespaces, schedules = offered
    assert (commands, verbs) == ("whoami", "versions")
    assert choices.split() == ["ask", "cancel", "detach"]
    assert job.name in jobs.split()
    assert namespaces == "default"
    assert schedules == f"{job.name}/nightly"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_every_shell_has_a_script(shell: str, system: System) -> None:
    printed = run([*HETUFLOW, "completion", shell], env=system.environment())
    assert printed.returncode == 0
    assert f"{shell}_complete" in printed.stdout


def test_nothing_is_offered_when_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HETUFLOW_URL", "http://127.0.0.1:1")
    context = click.Context(hetuflow, info_name="hetuflow")
    assert completion_items.completion_items(context, "job", "") == []
