from __future__ import annotations

import asyncio
import io
import os
import subprocess
import sys
from collections.abc import Callable, Iterator

import click
import pytest

from hetuflow_core import errors
from hetuflow_core.errors import ConfigInvalid, Fault, HetuflowError, NotFound
from hetuflow_core.runtime.exit_codes import EXIT_CODES, ExitCode, exit_code_for, run_command


def family(root: type[HetuflowError]) -> Iterator[type[HetuflowError]]:
    yield root
    for child in root.__subclasses__():
        if child.__module__ == errors.__name__:
            yield from family(child)


def raising(error: BaseException) -> Callable[[], int]:
    def main() -> int:
        raise error

    return main


@pytest.mark.parametrize("kind", list(family(HetuflowError)), ids=lambda kind: kind.__name__)
def test_every_error_has_the_code_of_its_nearest_mapped_ancestor(kind: type[HetuflowError]) -> None:
    nearest = next(ancestor for ancestor in kind.__mro__ if ancestor in EXIT_CODES)
    assert exit_code_for(kind("x")) == EXIT_CODES[nearest]
    assert nearest is not HetuflowError or kind is HetuflowError, (
        "a new branch of the tree needs an exit code"
    )


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        ("HetuflowError", 1),
        ("NotFound", 3),
        ("Denied", 4),
        ("Unauthenticated", 4),
        ("DatabaseUnreachable", 5),
        ("ServerUnreachable", 5),
        ("ConfigInvalid", 6),
        ("PortTaken", 7),
        ("DataDirectoryUnusable", 7),
        ("DiskFull", 7),
        ("BinariesMissing", 7),
        ("DatabaseTooOld", 8),
        ("SchemaBehind", 8),
        ("SchemaBeyondCode", 8),
        ("Conflict", 9),
        ("Invalid", 10),
        ("TooLarge", 10),
    ],
)
def test_the_codes_people_rely_on(kind: str, code: int) -> None:
    assert exit_code_for(getattr(errors, kind)("x")) == code


def test_the_most_specific_class_wins_also_for_classes_defined_elsewhere() -> None:
    class Gone(NotFound):
        pass

    assert exit_code_for(Gone("x")) == ExitCode.NOT_FOUND
    assert EXIT_CODES[errors.DatabaseUnusable] != exit_code_for(errors.DatabaseUnreachable("x"))


def test_codes_differ_and_every_one_is_described() -> None:
    assert len({int(code) for code in ExitCode}) == len(ExitCode.__members__)
    for code in ExitCode:
        assert code.description.endswith("."), code
        assert code.value == int(code)


def test_the_result_of_the_command_is_its_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(lambda: 42, debug=False) == 42
    assert capsys.readouterr() == ("", "")


def test_an_error_is_one_sentence_and_one_line_per_fault(capsys: pytest.CaptureFixture[str]) -> None:
    error = ConfigInvalid(
        "app.toml has 2 faults: mend them.",
        faults=[Fault("server.port", "is no\nnumber"), Fault("", "is empty")],
    )
    assert run_command(raising(error), debug=False, program="hetuflow-agent") == 6
    assert capsys.readouterr() == (
        "",
        "hetuflow-agent: app.toml has 2 faults: mend them.\n  server.port: is no number\n  is empty\n",
    )


def test_debug_adds_the_traceback(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(raising(NotFound("No such job.")), debug=True) == 3
    err = capsys.readouterr().err
    assert "Traceback (most recent call last)" in err
    assert err.endswith("hetuflow: No such job.\n")


@pytest.mark.parametrize(
    ("error", "named"),
    [
        (ValueError("bad\n  thing"), "ValueError (bad thing)"),
        (AssertionError(), "AssertionError"),
        (OSError("postgresql://u:pw@h is away"), "OSError (postgresql://u:***@h is away)"),
    ],
)
def test_an_unexpected_error_is_named_in_one_sentence(
    capsys: pytest.CaptureFixture[str], error: Exception, named: str
) -> None:
    assert run_command(raising(error), debug=False) == 1
    advice = "run it with --debug and report the output"
    assert capsys.readouterr().err == f"hetuflow: This is a bug in hetuflow, sorry: {named}; {advice}.\n"


def test_an_unexpected_error_with_debug_shows_the_traceback_without_secrets(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert run_command(raising(OSError("postgresql://u:pw@h is away")), debug=True) == 1
    err = capsys.readouterr().err
    assert "in main" in err
    assert ":pw@" not in err
    assert "--debug" not in err


@pytest.mark.parametrize("error", [KeyboardInterrupt(), click.Abort()])
def test_an_interrupt_is_130_and_says_nothing(
    capsys: pytest.CaptureFixture[str], error: BaseException
) -> None:
    assert run_command(raising(error), debug=False) == 130
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("error", "code", "err"),
    [
        (SystemExit(), 0, ""),
        (SystemExit(7), 7, ""),
        (SystemExit("No."), 1, "hetuflow: No.\n"),
        (click.exceptions.Exit(5), 5, ""),
        (click.UsageError("No such option: --hlep"), 2, "hetuflow: No such option: --hlep\n"),
        (
            ExceptionGroup("tasks", [ExceptionGroup("inner", [NotFound("No such job.")])]),
            3,
            "hetuflow: No such job.\n",
        ),
    ],
)
def test_exits_usage_errors_and_lone_group_members(
    capsys: pytest.CaptureFixture[str], error: BaseException, code: int, err: str
) -> None:
    assert run_command(raising(error), debug=False) == code
    assert err in capsys.readouterr().err


def test_a_broken_pipe_elsewhere_than_on_our_output_is_told(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(raising(BrokenPipeError("keeper is gone")), debug=False) == 1
    assert "BrokenPipeError (keeper is gone)" in capsys.readouterr().err


def test_a_closed_stderr_changes_no_exit_code(monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.close()
    monkeypatch.setattr(sys, "stderr", stream)
    assert run_command(raising(NotFound("No such job.")), debug=False) == 3


ABSENT = """
import structlog, sys
from hetuflow_core.errors import NotFound
from hetuflow_core.runtime.exit_codes import run_command
from hetuflow_core.runtime.logging import configure_logging
def main():
    configure_logging("info", "auto")
    structlog.get_logger("hetuflow.test").error("into the void")
    if sys.argv[1:]:
        raise NotFound("No such job.")
    return 0
sys.exit(run_command(main, debug=True))
"""


@pytest.mark.parametrize(("arguments", "code"), [("", 0), ("fail", 3)])
def test_a_process_without_output_streams_works(arguments: str, code: int) -> None:
    script = f'exec "$0" -c "$1" {arguments} >&- 2>&-'
    process = subprocess.run(["/bin/sh", "-c", script, sys.executable, ABSENT], timeout=60, check=False)
    assert process.returncode == code


PLAIN = """
def main():
    for _ in range(100000):
        print("line")
    return 0
"""
LATE = """
def main():
    print("short")  # stays in the buffer until the end
    return 0
"""
CLICK = """
import click
@click.command()
def command():
    for _ in range(100000):
        click.echo("line")
def main():
    command.main([], standalone_mode=False)
    return 0
"""


@pytest.mark.parametrize("body", [PLAIN, LATE, CLICK], ids=["plain", "late", "click"])
def test_a_reader_that_goes_away_is_141_without_a_word(body: str) -> None:
    program = f"{body}\nimport sys\nfrom {run_command.__module__} import run_command\n"
    program += "sys.exit(run_command(main, debug=False))"
    reader, writer = os.pipe()
    os.close(reader)
    process = subprocess.run(
        [sys.executable, "-c", program],
        stdout=writer,
        stderr=subprocess.PIPE,
        text=True,
        timeout=60,
        check=False,
    )
    os.close(writer)
    assert (process.returncode, process.stderr) == (141, "")


def test_an_error_from_inside_an_event_loop(capsys: pytest.CaptureFixture[str]) -> None:
    async def work() -> int:
        async with asyncio.TaskGroup() as group:
            group.create_task(fail())
        return 0

    async def fail() -> None:
        raise NotFound("No such job.")

    assert run_command(lambda: asyncio.run(work()), debug=False) == 3
    assert capsys.readouterr().err == "hetuflow: No such job.\n"
