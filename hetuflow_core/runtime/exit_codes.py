"""Map errors to exit codes and print them on stderr."""

from __future__ import annotations

import os
import select
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import suppress
from enum import IntEnum
from typing import Final, Self, TextIO

import click

from hetuflow_core.errors import (
    ConfigInvalid,
    Conflict,
    DatabaseUnreachable,
    DatabaseUnusable,
    Denied,
    HetuflowError,
    HostBlocked,
    Invalid,
    NotFound,
    ServerUnreachable,
    TooLarge,
)
from hetuflow_core.runtime.redaction import redact_text
from hetuflow_core.runtime.terminal import coloured


class ExitCode(IntEnum):
    """Exit codes of all programs; `description` appears in the reference page."""

    description: str

    def __new__(cls, value: int, description: str) -> Self:
        member = int.__new__(cls, value)
        member._value_ = value
        member.description = description
        return member

    OK = 0, "The command succeeded."
    FAILURE = 1, "The command failed for a reason without a specific code."
    USAGE = 2, "The command line is wrong."
    NOT_FOUND = 3, "The named object does not exist, or you may not see it."
    DENIED = 4, "The credential is missing or wrong, or its permissions are insufficient."
    UNREACHABLE = 5, "The server or the database cannot be reached."
    CONFIG_INVALID = 6, "The configuration is invalid; all faults are listed."
    HOST_BLOCKED = (
        7,
        "A problem of this machine prevents it: a port, the data directory, the disk, missing binaries.",
    )
    DATABASE_UNUSABLE = 8, "The database or its schema has a version that this program cannot use."
    CONFLICT = 9, "The current state does not allow the operation."
    INVALID = 10, "A file or a value breaks a rule."
    INTERRUPTED = (
        130,
        "The command was interrupted with Ctrl-C (SIGINT), or a second SIGINT aborted an orderly stop.",
    )
    BROKEN_PIPE = 141, "The reader of the output closed the pipe."
    TERMINATED = 143, "A second SIGTERM aborted an orderly stop."


EXIT_CODES: Final[Mapping[type[HetuflowError], ExitCode]] = {
    HetuflowError: ExitCode.FAILURE,
    ConfigInvalid: ExitCode.CONFIG_INVALID,
    HostBlocked: ExitCode.HOST_BLOCKED,
    DatabaseUnusable: ExitCode.DATABASE_UNUSABLE,
    DatabaseUnreachable: ExitCode.UNREACHABLE,
    ServerUnreachable: ExitCode.UNREACHABLE,
    Invalid: ExitCode.INVALID,
    NotFound: ExitCode.NOT_FOUND,
    Denied: ExitCode.DENIED,
    Conflict: ExitCode.CONFLICT,
    TooLarge: ExitCode.INVALID,
}

_LONGEST_SENTENCE: Final = 500


def exit_code_for(error: BaseException) -> int:
    """Return the code of the nearest ancestor class that has one; FAILURE for unexpected errors."""
    match error:
        case click.ClickException() | click.exceptions.Exit():
            return error.exit_code
        case KeyboardInterrupt() | click.Abort():
            return ExitCode.INTERRUPTED
        case SystemExit(code=None):
            return ExitCode.OK
        case SystemExit(code=int(code)):
            return code
    mapped = (EXIT_CODES[ancestor] for ancestor in type(error).__mro__ if ancestor in EXIT_CODES)
    return next(mapped, ExitCode.FAILURE)


def run_command(main: Callable[[], int], *, debug: bool, program: str = "hetuflow") -> int:
    """Run a program's main function; turn any exception into an exit code and a line on stderr.

    `main` may be a click group run with `standalone_mode=False`: errors of click are printed in the same way.
    """
    try:
        code = main()
        # Flush inside the try: a closed pipe often shows only here.
        click.echo(nl=False)
    except BaseException as raised:  # noqa: BLE001  the interpreter must not print a traceback
        error = _single(raised)
        # Click turns a broken pipe into a SystemExit without a message.
        if isinstance(error, BrokenPipeError | SystemExit) and _reader_closed(sys.__stdout__, sys.__stderr__):
            return ExitCode.BROKEN_PIPE
        with suppress(OSError, ValueError):  # a closed stderr changes no exit code
            _print_error(error, debug=debug, program=program)
        return exit_code_for(error)
    return code


def _print_error(error: BaseException, *, debug: bool, program: str) -> None:
    match error:
        case click.exceptions.NoArgsIsHelpError():
            error.show()
        case click.UsageError(ctx=click.Context() as context):
            _print_message(program, f"{error.format_message()} See `{context.command_path} --help`.")
        case click.ClickException():
            _print_message(program, error.format_message())
        case SystemExit(code=str(sentence)):
            _print_message(program, sentence)
        case HetuflowError():
            _trace(error, debug=debug)
            _print_message(program, error.message, *map(str, error.faults))
        case Exception() if not isinstance(error, click.Abort | click.exceptions.Exit):
            _trace(error, debug=debug)
            kind, detail = type(error).__name__, _one_line(str(error))
            cause = f"{kind} ({detail})" if detail else kind
            advice = (
                "report it with the traceback above" if debug else "run it with --debug and report the output"
            )
            _print_message(program, f"This is a bug in {program}, sorry: {cause}; {advice}.")


def _trace(error: Exception, *, debug: bool) -> None:
    if debug:
        click.echo(redact_text("".join(traceback.format_exception(error))), err=True, nl=False)


def _print_message(program: str, sentence: str, *faults: str) -> None:
    lines = [_one_line(sentence), *(f"  {_one_line(fault)}" for fault in faults)]
    name, colour = f"{program}:", coloured(sys.stderr)
    click.echo(
        f"{click.style(name, fg='red', bold=True) if colour else name} {redact_text(chr(10).join(lines))}",
        err=True,
        color=colour,
    )


def _one_line(text: str) -> str:
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_SENTENCE else f"{text[: _LONGEST_SENTENCE - 1]}…"


def _single(error: BaseException) -> BaseException:
    """Unwrap an exception group that contains a single error."""
    while isinstance(error, BaseExceptionGroup) and len(error.exceptions) == 1:
        error = error.exceptions[0]
    return error


def _reader_closed(*streams: TextIO | None) -> bool:
    """Whether the reader of a standard stream is closed; a broken pipe elsewhere is an ordinary error.

    Such a stream is redirected to /dev/null: the interpreter flushes it at exit and would fail again.
    """
    closed = False
    for stream in streams:
        with suppress(OSError, ValueError):
            if stream is not None and _broken(stream.fileno()):
                closed = True
                os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
    return closed


def _broken(descriptor: int) -> bool:
    poller = select.poll()
    poller.register(descriptor, 0)
    return any(events & select.POLLERR for _, events in poller.poll(0))
