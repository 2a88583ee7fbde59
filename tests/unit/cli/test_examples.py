"""Every command has an example, every example is a command, and every call has a command."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import click
import pytest

from hetuflow_core.client import Hetuflow
from hetuflow_server import cli
from hetuflow_server.cli.command_tree import all_commands
from hetuflow_server.cli.main import hetuflow
from hetuflow_server.cli.reference import example_of

VERBS = {path: command for path, command in all_commands(hetuflow) if not isinstance(command, click.Group)}


def called(example: str) -> list[str]:
    """The words behind `hetuflow` in an example, also in one that sets a variable from it or before it."""
    inner = re.search(r"\$\((hetuflow [^)]*)\)", example)
    words = shlex.split(inner[1] if inner else example)
    return words[words.index("hetuflow") + 1 :]


def parsed(words: list[str]) -> click.Context:
    """The context in which the command would be run; mistakes are told by click."""
    context = hetuflow.make_context("hetuflow", words)
    while isinstance(context.command, click.Group):
        rest = [*context._protected_args, *context.args]
        if not rest:
            return context
        name, command, behind = context.command.resolve_command(context, rest)
        assert command is not None
        context = command.make_context(name, behind, parent=context)
    return context


@pytest.mark.parametrize("path", VERBS, ids=" ".join)
def test_every_command_has_an_example_that_is_one_of_it(path: tuple[str, ...]) -> None:
    example = example_of(VERBS[path])
    assert example is not None, "say `Example: hetuflow …` at the end of its help"
    words = called(example)
    aliases = {("schedule", "backfill"): ["backfill", "create"], ("instance", "logs"): ["task", "logs"]}
    wanted = aliases.get(path, list(path))
    assert words[: len(wanted)] == wanted, example
    parsed(words)


@pytest.mark.parametrize(
    "words", [["job", "lst"], ["job", "list", "--limt"], ["job", "get"], ["task", "list", "--status", "x"]]
)
def test_a_wrong_example_would_be_noticed(words: list[str]) -> None:
    with pytest.raises(click.UsageError):
        parsed(words)


def test_commands_have_a_line_and_end_with_a_full_stop() -> None:
    for path, command in all_commands(hetuflow):
        first = (command.help or "").strip().split("\n\n")[0]
        assert first.endswith("."), path


# Calls that no command makes, and why none has to.
WITHOUT_A_COMMAND = {
    "job_by_id": "commands name jobs",
    "schedule_by_id": "commands name schedules",
    "daemon_by_id": "commands name daemons by their jobs",
    "agent_by_id": "commands name agents",
    "agent_command": "`agent commands` lists them with all there is to know",
    "run_many": "a shell runs many with a loop, or with a map in a flow",
    "enqueue": "takes a Python function",
    "wait": "`job run --wait` watches instead, to show what goes on",
    "logs": "`task logs` reads in pieces",
    "create_calendar": "`apply` makes calendars",
}


def test_every_call_of_the_client_has_a_command() -> None:
    calls = {name for name, value in vars(Hetuflow).items() if callable(value) and not name.startswith("_")}
    folder = Path(cli.__file__).parent
    source = "\n".join(file.read_text(encoding="utf-8") for file in folder.rglob("*.py"))
    made = {name for name in calls if re.search(rf"\b(client|another)\.{name}\b", source)}
    assert calls - made == set(WITHOUT_A_COMMAND)
