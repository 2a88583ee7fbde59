"""The command line on a real terminal: questions, colours, times and lines that are rewritten."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import pytest

from tests.e2e.conftest import System
from tests.support.processes.processes import HETUFLOW, run
from tests.support.processes.terminal import CTRL_C, OnTerminal
from tests.support.waiting import wait_until

# Ends with 7 once the file is there.
GATED = "echo started; until [ -e {gate} ]; do sleep 0.05; done; echo done; exit 7"


def on_terminal(system: System, *arguments: str) -> OnTerminal:
    return OnTerminal([*HETUFLOW, *arguments], env=system.environment())


def gated(system: System, gate: Path) -> str:
    job = system.apply(run={"script": GATED.format(gate=gate)}, kill_grace="100ms")
    return job.name


def test_ctrl_c_asks_and_cancels(system: System, tmp_path: Path) -> None:
    job = gated(system, tmp_path / "gate")
    with on_terminal(system, "job", "run", job, "--logs") as terminal:
        terminal.expect("started")
        terminal.type(CTRL_C)
        terminal.expect("[d]etach, [c]ancel it or keep [w]atching?")
        terminal.type("c\n")
        terminal.expect("Cancelling Task")
        assert terminal.wait() == 143
    (task,) = system.client.tasks(job=job)
    assert task.status == "cancelled"


def test_ctrl_c_asks_and_goes_on_watching_then_passes_the_exit_code_on(
    system: System, tmp_path: Path
) -> None:
    job = gated(system, tmp_path / "gate")
    with on_terminal(system, "job", "run", job, "--logs") as terminal:
        terminal.expect("started")
        terminal.type(CTRL_C)
        terminal.expect("[w]atching?")
        terminal.type("w\n")
        (tmp_path / "gate").touch()
        assert terminal.wait() == 7
        assert terminal.text.count("started") == 1
        assert "done" in terminal.text
        assert "Traceback" not in terminal.text


def test_before_files_remove_something_it_is_shown_and_asked(system: System, tmp_path: Path) -> None:
    mark = f"pruned-{uuid4().hex[:8]}"
    command = {"command": ["true"]}
    system.client.apply([{"kind": "job", "name": mark, "run": command}], owner=mark)
    (tmp_path / "kept.json").write_text(json.dumps({"kind": "job", "name": f"{mark}-kept", "run": command}))
    asked = ("apply", "-f", str(tmp_path), "--owner", mark, "--prune")
    for answer, code, left in (("n\n", 1, {mark}), ("y\n", 0, {f"{mark}-kept"})):
        with on_terminal(system, *asked) as terminal:
            terminal.expect(f"Apply, and remove job default/{mark}? [y/N]")
            terminal.type(answer)
            assert terminal.wait() == code
        assert {one.name for one in system.client.jobs() if one.name.startswith(mark)} == left


@pytest.mark.parametrize("option", ["--logs", "--wait"])
def test_a_second_ctrl_c_detaches(system: System, tmp_path: Path, option: str) -> None:
    job = gated(system, tmp_path / "gate")
    with on_terminal(system, "job", "run", job, option) as terminal:
        terminal.expect("started" if option == "--logs" else "is running on worker")
        terminal.type(CTRL_C)
        terminal.expect("[w]atching?")
        terminal.type(CTRL_C)
        assert terminal.wait() == 130
        assert "The task continues. To cancel it: hetuflow task cancel" in terminal.text
        assert "Traceback" not in terminal.text
    (task,) = system.client.tasks(job=job)
    assert task.finished_at is None
    (tmp_path / "gate").touch()
    assert system.client.wait(task.id, timeout=60).exit_code == 7


def test_tables_are_coloured_and_times_felt_on_a_terminal_only(system: System) -> None:
    job = system.apply(run={"command": ["true"]}, labels={"long": "x" * 30})
    system.client.wait(system.client.run(job.id).id, timeout=60)
    with on_terminal(system, "task", "list", "--job", job.name) as terminal:
        assert terminal.wait() == 0
        assert terminal.text.count(" ago") + terminal.text.count(" now") >= 2
        assert "\x1b[32msucceeded" in terminal.raw
    with on_terminal(system, "task", "list", "--job", job.name, "--color", "never") as terminal:
        assert terminal.wait() == 0
        assert "succeeded" in terminal.raw
        assert "\x1b[3" not in terminal.raw
    piped = run([*HETUFLOW, "task", "list", "--job", job.name], env=system.environment())
    assert "\x1b" not in piped.stdout
    assert " ago" not in piped.stdout
    assert " now" not in piped.stdout
    forced = run([*HETUFLOW, "--color", "always", "task", "list"], env=system.environment())
    assert "\x1b[32msucceeded" in forced.stdout


def test_deleting_asks_on_a_terminal(system: System) -> None:
    job = system.apply(run={"command": ["true"]}, schedules=[{"name": "n", "cron": "0 2 * * *"}])
    with on_terminal(system, "job", "delete", job.name) as terminal:
        terminal.expect(f"Delete the job default/{job.name} and its 1 schedule? [y/N]")
        terminal.type("n\n")
        assert terminal.wait() == 1
        assert "Nothing was changed." in terminal.text
    assert system.client.job("default", job.name).id == job.id
    with on_terminal(system, "job", "delete", job.name) as terminal:
        terminal.expect("[y/N]")
        terminal.type("y\n")
        assert terminal.wait() == 0


def test_a_log_is_followed_from_its_end_and_by_stream(system: System, tmp_path: Path) -> None:
    gate = tmp_path / "gate"
    job = system.apply(
        run={"script": f"seq 1 20; echo oops >&2; until [ -e {gate} ]; do sleep 0.05; done; echo done"}
    )
    task = system.client.run(job.id)
    with on_terminal(system, "task", "logs", "-f", str(task.id), "--stream", "stderr") as terminal:
        terminal.expect("oops")
        with on_terminal(system, "task", "logs", "-f", str(task.id), "--tail", "3") as tail:
            tail.expect("20")
            gate.touch()
            assert tail.wait() == 0
        assert terminal.wait() == 0
        assert terminal.text == "oops\n"
    # The two streams arrive in any order: two or three of the numbers are among the last three lines.
    assert "\n17\n" not in tail.text
    assert tail.text.endswith("done\n")
    since = run([*HETUFLOW, "task", "logs", "-f", str(task.id), "--since", "1h"], env=system.environment())
    assert since.stdout.splitlines() == [*map(str, range(1, 21)), "done"]
    assert since.stderr == "oops\n"


@pytest.mark.parametrize("choice", ["cancel", "detach"])
def test_scripts_say_what_an_interrupt_means(system: System, tmp_path: Path, choice: str) -> None:
    job = gated(system, tmp_path / "gate")
    with on_terminal(system, "job", "run", job, "--logs", "--on-interrupt", choice) as terminal:
        terminal.expect("started")
        terminal.type(CTRL_C)
        assert terminal.wait() == (143 if choice == "cancel" else 130)
        assert "[d]etach" not in terminal.text
    (tmp_path / "gate").touch()


def test_a_broken_pipe_is_quiet(system: System) -> None:
    for _ in range(2):
        system.apply(run={"command": ["true"]})
    command = " ".join([*HETUFLOW, "job", "list", "-o", "json", "--limit", "500"])
    shell = run(["bash", "-c", f"{command} | head -c 1"], env=system.environment())
    assert (shell.stdout, shell.stderr) == ("[", "")


def test_a_list_is_watched_until_ctrl_c(system: System) -> None:
    job = system.apply(run={"command": ["true"]})
    with on_terminal(system, "task", "list", "--job", job.name, "--watch", "0.2") as terminal:
        terminal.expect("ID")
        system.client.wait(system.client.run(job.id).id, timeout=60)
        terminal.expect("succeeded")
        terminal.type(CTRL_C)
        assert terminal.wait() == 0
        assert "Traceback" not in terminal.text
    piped = run([*HETUFLOW, "task", "list", "--watch"], env=system.environment())
    assert (piped.returncode, piped.stdout) == (2, "")


def test_changes_of_tasks_are_told_as_they_happen(system: System) -> None:
    job = system.apply(run={"command": ["true"]})
    with on_terminal(system, "task", "watch", "--job", job.name) as terminal:
        # What happens before it listens is not told: run it until something is.
        def told() -> bool:
            system.client.wait(system.client.run(job.id).id, timeout=60)
            return "succeeded" in terminal.text

        wait_until(told, what="a change to be told")
        assert job.name in terminal.text
        terminal.type(CTRL_C)
        assert terminal.wait() == 0
