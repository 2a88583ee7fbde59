"""A command on a terminal of its own, as somebody at a keyboard has it."""

from __future__ import annotations

import fcntl
import os
import re
import struct
import subprocess
import sys
import termios
import threading
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Self

from tests.support.waiting import wait_until

CTRL_C = "\x03"
_ESCAPES = re.compile(r"\x1b\[[0-9;?]*[A-Za-z]")
# The terminal becomes the controlling one only inside the new process.
_LAUNCH = """
import fcntl, os, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
os.execvp(sys.argv[1], sys.argv[1:])
"""


class OnTerminal:
    def __init__(
        self,
        command: Sequence[str | Path],
        *,
        env: Mapping[str, str],
        cwd: Path | None = None,
        columns: int = 120,
    ) -> None:
        self._keyboard, screen = os.openpty()
        fcntl.ioctl(screen, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        self._process = subprocess.Popen(
            [sys.executable, "-c", _LAUNCH, *command],
            env={**env, "TERM": "xterm"},
            cwd=cwd,
            stdin=screen,
            stdout=screen,
            stderr=screen,
            start_new_session=True,
        )
        os.close(screen)
        self.raw = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def text(self) -> str:
        """What is shown, without colours and movements of the cursor."""
        return _ESCAPES.sub("", self.raw).replace("\r\n", "\n")

    def expect(self, text: str) -> None:
        def shown() -> bool:
            assert text in self.text or self._process.poll() is None, f"ended without {text!r}:\n{self.text}"
            return text in self.text

        wait_until(shown, timeout=60, what=f"{text!r} on the terminal")

    def type(self, keys: str) -> None:
        os.write(self._keyboard, keys.encode())

    def wait(self, timeout: float = 60) -> int:
        code = self._process.wait(timeout)
        self._reader.join(10)
        return code

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        if self._process.poll() is None:
            self._process.kill()
            self._process.wait(10)
        self._reader.join(10)
        os.close(self._keyboard)

    def _read(self) -> None:
        # Linux says EIO when the last process has closed the other end.
        with suppress(OSError):
            while data := os.read(self._keyboard, 65_536):
                self.raw += data.decode(errors="replace")
