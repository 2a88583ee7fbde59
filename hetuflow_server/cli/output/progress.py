"""A progress line on a terminal; prints nothing elsewhere."""

from __future__ import annotations

import os
import shutil
import sys
from typing import Final

from hetuflow_core.runtime.terminal import is_terminal

_STDERR: Final = 2
_CLEAR: Final = "\r\x1b[K"
_BAR_WIDTH: Final = 24


class StatusLine:
    """Rewritten in place on standard error, through the descriptor, so that a signal handler can clear it."""

    def __init__(self, *, shown: bool) -> None:
        self._shown = shown
        self._text = ""

    @classmethod
    def on_terminal(cls, *, quiet: bool) -> StatusLine:
        return cls(shown=not quiet and is_terminal(sys.stderr) and os.environ.get("TERM") != "dumb")

    @classmethod
    def silent(cls) -> StatusLine:
        return cls(shown=False)

    def update(self, text: str) -> None:
        if not self._shown or text == self._text:
            return
        self._text = text
        # Leave one column free: a full line would wrap, and only its last row could be rewritten.
        columns = shutil.get_terminal_size().columns - 1
        os.write(_STDERR, f"{_CLEAR}{text[:columns]}".encode())

    def clear(self) -> None:
        if self._shown and self._text:
            os.write(_STDERR, _CLEAR.encode())
            self._text = ""


def bar(done: int, total: int) -> str:
    """Return a bar such as `[##########..............]  42%`, in ASCII for all terminals."""
    share = min(done / total, 1.0) if total else 1.0
    full = int(share * _BAR_WIDTH)
    return f"[{'#' * full}{'.' * (_BAR_WIDTH - full)}] {int(share * 100):3d}%"
