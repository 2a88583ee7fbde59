"""`--watch`: repeat the output of a command in place."""

from __future__ import annotations

import io
import sys
import time
from collections.abc import Callable
from contextlib import redirect_stdout
from typing import Any, Final

import click

from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_core.runtime.terminal import is_terminal

# Move to the top left; clear to the end of the line; clear the lines below.
_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_CLEAR: Final = "\x1b[2J"


class _Screen(io.StringIO):
    """Collects the whole output, so that the screen is replaced at once."""

    def isatty(self) -> bool:
        return True


def watched(show: Callable[[], Any], seconds: float) -> int:
    """Repeat `show` until Ctrl-C."""
    if not is_terminal(sys.stdout):
        raise click.UsageError("--watch needs a terminal: leave it out.")
    terminal = sys.stdout
    terminal.write(_CLEAR)
    try:
        while True:
            with redirect_stdout(_Screen()) as screen:
                show()
            text = screen.getvalue().replace("\n", f"{_END_OF_LINE}\n")
            terminal.write(f"{_HOME}{text}{_BELOW}")
            terminal.flush()
            time.sleep(seconds)
    except KeyboardInterrupt:
        return ExitCode.OK
