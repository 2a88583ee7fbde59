"""Ctrl-C while a command waits for a task or backfill: detach, cancel or keep watching."""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import FrameType
from typing import Any, Final, Literal

import click

from hetuflow_core.runtime.terminal import is_terminal
from hetuflow_server.cli.output.progress import StatusLine

Choice = Literal["ask", "cancel", "detach"]

on_interrupt_option = click.option(
    "--on-interrupt",
    type=click.Choice(["ask", "cancel", "detach"]),
    default="ask",
    metavar="ACTION",
    help="What Ctrl-C does: ask (without a terminal: detach), cancel or detach.",
)

_STDERR: Final = 2
_ANSWERS: Final = {"d": "detach", "c": "cancel", "w": "watch"}


class _InterruptHandler:
    """Asks inside the signal handler, so that the interrupted code, mostly a network read, can continue.

    It uses the file descriptors, because the interrupted code may hold the locks of the streams.
    """

    def __init__(self, what: str, choice: Choice, cancel: Callable[[], Any], line: StatusLine) -> None:
        self._what = what
        self._cancel = cancel
        self._line = line
        if choice == "ask" and not (is_terminal(sys.stdin) and is_terminal(sys.stderr)):
            choice = "detach"
        self._choice = choice
        self._decided = False

    def interrupted(self, _number: int, _frame: FrameType | None) -> None:
        # A second Ctrl-C, during the question or after a cancel, detaches.
        if self._decided or self._choice == "detach":
            raise KeyboardInterrupt
        self._decided = True
        self._line.clear()
        answer = self._ask() if self._choice == "ask" else "cancel"
        if answer == "detach":
            raise KeyboardInterrupt
        if answer == "cancel":
            _print(f"Cancelling {self._what}; press Ctrl-C again to detach.\n")
            self._cancel()
        self._decided = answer == "cancel"

    def _ask(self) -> str:
        while True:
            _print(f"\n{self._what} is still running: [d]etach, [c]ancel it or keep [w]atching? [d] ")
            typed = os.read(sys.stdin.fileno(), 1024).decode(errors="replace").strip().lower()
            answer = _ANSWERS.get(typed[:1] or "d")
            if answer is not None:
                return answer


@contextmanager
def handle_interrupts(
    what: str, choice: Choice, cancel: Callable[[], Any], line: StatusLine | None = None
) -> Iterator[None]:
    """Within the block, Ctrl-C acts by `choice`; `KeyboardInterrupt` means that the user detached."""
    handler = _InterruptHandler(what, choice, cancel, line or StatusLine.silent())
    before = signal.signal(signal.SIGINT, handler.interrupted)
    try:
        yield
    finally:
        signal.signal(signal.SIGINT, before)


def _print(text: str) -> None:
    os.write(_STDERR, text.encode())
