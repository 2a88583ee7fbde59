"""`--watch`: what a command shows, again and again on the same spot of the terminal."""

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

# Home; clear to the end of the line; clear what is left below.
_HOME, _END_OF_LINE, _BELOW = "\x1b[H", "\x1b[K", "\x1b[J"
_CLEAR: Final = "\x1b[2J"


class _Screen(io.StringIO):
    """Gathers one picture, so that the old one stays until the new one is whole."""

    def isatty(self) -> bool:
        return True


def watched(show: Callable[[], Any], seconds: float) -> int:
    """Show it until Ctrl-C."""
    if not is_terminal(sys.stdout):
        raise click.UsageError("--watch is for terminals: leave it out.")
    terminal = sys.stdout
    terminal.write(_CLEAR)
    try:
        while True:
            with redirect_stdout(_Screen()) as screen:
                show()
            picture = screen.getvalue().replace("\n", f"{_END_OF_LINE}\n")
            terminal.write(f"{_HOME}{picture}{_BELOW}")
            terminal.flush()
            time.sleep(seconds)
    except KeyboardInterrupt:
        return ExitCode.OK
