"""What holds for every command: where options may stand, what is suggested, how mistakes are told."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import click
import pytest
from click.testing import CliRunner

from hetuflow_core.errors import HetuflowError, Invalid
from hetuflow_core.runtime.exit_codes import run_command
from hetuflow_server.cli.command_tree import Noun, Verb, all_commands, early_options, with_common_behaviour
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.main import _MISSING_NOUNS, hetuflow
from hetuflow_server.cli.options.shared import COMMON, YES

ENVIRONMENT = {"PATH": "/usr/bin:/bin", "LANG": "C.UTF-8"}


@click.group("thing")
def thing_group() -> None:
    """Things."""


@thing_group.command("get")
@click.argument("name")
@YES
@server_command
def get_thing(invocation: Invocation, name: str) -> None:
    """Get a thing.

    Example: hetuflow thing get x
    """
    seen = {
        "name": name,
        "namespace": invocation.given_namespace,
        "output": invocation.output,
        "quiet": invocation.quiet,
        "yes": invocation.yes,
        "url": invocation.given_url,
    }
    click.echo(json.dumps(seen))


@thing_group.command("count")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text")
def count_things(output: str) -> None:
    """Count things."""
    click.echo(output)


@pytest.fixture
def program() -> click.Group:
    root = Noun("hetuflow", params=[*early_options(hidden=False)])
    root.add_command(with_common_behaviour(thing_group))
    return root


def ask(program: click.Group, *arguments: str, **env: str) -> dict[str, object]:
    result = CliRunner().invoke(program, arguments, env=env, catch_exceptions=False)
    assert result.exit_code == 0, result.output
    seen: dict[str, object] = json.loads(result.stdout)
    return seen


@pytest.mark.parametrize(
    "arguments",
    [
        ["-n", "team", "-o", "yaml", "-q", "-y", "--url", "http://x", "thing", "get", "a"],
        ["thing", "-n", "team", "-o", "yaml", "-q", "-y", "--url", "http://x", "get", "a"],
        ["thing", "get", "a", "-n", "team", "-o", "yaml", "-q", "-y", "--url", "http://x"],
        ["-n", "team", "thing", "-o", "yaml", "-q", "get", "-y", "a", "--url", "http://x"],
    ],
)
def test_common_options_may_stand_anywhere(program: click.Group, arguments: list[str]) -> None:
    seen = ask(program, *arguments)
    wanted = {"name": "a", "namespace": "team", "output": "yaml", "quiet": True, "yes": True}
    assert seen == {**wanted, "url": "http://x"}


def test_the_last_word_counts_and_every_word_beats_the_environment(program: click.Group) -> None:
    assert ask(program, "-n", "one", "thing", "-n", "two", "get", "a")["namespace"] == "two"
    assert ask(program, "-n", "one", "thing", "get", "a", "-n", "three")["namespace"] == "three"
    assert ask(program, "-n", "one", "thing", "get", "a", HETUFLOW_NAMESPACE="env")["namespace"] == "one"
    assert ask(program, "thing", "get", "a", HETUFLOW_NAMESPACE="env")["namespace"] == "env"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["-n", "team", "thing", "count"], "does not accept --namespace"),
        (["-o", "yaml", "thing", "count"], "'yaml' is not one of 'text', 'json'"),
        (["-o", "nonsense", "thing", "get", "a"], "'nonsense' is not one of"),
    ],
)
def test_what_a_verb_does_not_take_is_refused(program: click.Group, arguments: list[str], words: str) -> None:
    result = CliRunner().invoke(program, arguments)
    assert result.exit_code == 2
    assert words in result.output


def test_a_verb_with_an_output_of_its_own_is_handed_the_early_one(program: click.Group) -> None:
    assert CliRunner().invoke(program, ["-o", "json", "thing", "count"]).output == "json\n"


def test_help_tells_common_options_apart(program: click.Group) -> None:
    shown = CliRunner().invoke(program, ["thing", "count", "--help"]).output
    own, _, common = shown.partition("Common options:")
    assert "--debug" not in own
    assert {"--debug", "--color", "--help"} <= set(common.split())


def test_every_command_is_a_noun_or_a_verb() -> None:
    commands = dict(all_commands(hetuflow))
    assert len(commands) > 100
    assert all(isinstance(one, Noun | Verb) for one in commands.values())
    flags = {flag for one in COMMON for flag in one.flags}
    for path, command in commands.items():
        if isinstance(command, Noun):
            assert flags <= {flag for one in command.params for flag in one.opts}, path


def test_what_is_suggested_for_verbs_without_a_noun_exists() -> None:
    paths = {" ".join(path) for path, _ in all_commands(hetuflow)}
    assert set(_MISSING_NOUNS.values()) <= paths


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["jbo", "list"], "hetuflow: No such command 'jbo'. Did you mean 'job'? See `hetuflow --help`.\n"),
        (
            ["job", "lst"],
            "hetuflow: No such command 'lst'. Did you mean 'list'? See `hetuflow job --help`.\n",
        ),
        (
            ["run", "x"],
            "hetuflow: Unknown command 'run'. Did you mean `hetuflow job run`? See `hetuflow --help`.\n",
        ),
        (
            ["task", "list", "--sinse", "1h"],
            "hetuflow: No such option '--sinse'. Did you mean '--since'? See `hetuflow task list --help`.\n",
        ),
        (["job", "get"], "hetuflow: Missing argument 'NAME'. See `hetuflow job get --help`.\n"),
    ],
)
def test_mistakes_are_one_sentence_with_a_way_on(
    arguments: list[str], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def run() -> int:
        hetuflow.main(arguments, prog_name="hetuflow", standalone_mode=False)
        return 0

    assert run_command(run, debug=False) == 2
    assert capsys.readouterr() == ("", sentence)


BROKEN = """
import sys
from hetuflow_server.cli import connection
def find_connection(*args, **kwargs):
    raise ZeroDivisionError("planted")
connection.find_connection = find_connection
from hetuflow_server.cli.main import main
main()
"""


@pytest.mark.parametrize("place", ["early", "late"])
def test_a_bug_is_one_sentence_and_a_traceback_for_who_asks(tmp_path: Path, place: str) -> None:
    def run(*arguments: str) -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", BROKEN, *arguments]
        return subprocess.run(
            command, cwd=tmp_path, env=ENVIRONMENT, capture_output=True, text=True, timeout=60, check=False
        )

    told = run("job", "list")
    sentence = (
        "This is a bug in hetuflow, sorry: ZeroDivisionError (planted); "
        "run it with --debug and report the output."
    )
    assert (told.returncode, told.stdout, told.stderr) == (1, "", f"hetuflow: {sentence}\n")
    traced = run("--debug", "job", "list") if place == "early" else run("job", "list", "--debug")
    assert traced.returncode == 1
    assert "in find_connection" in traced.stderr


@pytest.mark.parametrize("yes", [True, False])
def test_scripts_are_asked_only_about_what_they_cannot_see(yes: bool, program: click.Group) -> None:
    @click.command("drop")
    @click.option("--all", "everything", is_flag=True)
    @YES
    @server_command
    def drop(invocation: Invocation, everything: bool) -> None:
        invocation.confirm("Drop it?", asks_scripts=everything)
        click.echo("dropped")

    program.add_command(with_common_behaviour(drop))
    answer = ["--yes"] if yes else []
    assert CliRunner().invoke(program, ["drop", *answer]).output == "dropped\n"
    result = CliRunner().invoke(program, ["drop", "--all", *answer])
    assert isinstance(result.exception, Invalid) is not yes
    assert ("dropped" in result.output) is yes


@pytest.mark.parametrize(("answer", "done"), [("y\n", True), ("n\n", False), ("\n", False)])
def test_people_are_asked(
    program: click.Group, monkeypatch: pytest.MonkeyPatch, answer: str, done: bool
) -> None:
    @click.command("drop")
    @YES
    @server_command
    def drop(invocation: Invocation) -> None:
        invocation.confirm("Drop it?")
        click.echo("dropped")

    program.add_command(with_common_behaviour(drop))
    monkeypatch.setattr("hetuflow_server.cli.invocation.is_terminal", lambda _: True)
    result = CliRunner().invoke(program, ["drop"], input=answer)
    assert "Drop it? [y/N]" in result.output
    assert ("dropped" in result.output) is done
    assert isinstance(result.exception, HetuflowError) is not done
