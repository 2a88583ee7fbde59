"""A shell that keeps its folder, variables and last exit code between commands, as in a terminal."""

from __future__ import annotations

import codecs
import os
import re
import signal
import subprocess
import threading
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from uuid import uuid4

from tests.support.waiting import wait_until

_STOP_SECONDS = 30


class Shell:
    def __init__(self, folder: Path, environment: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            ["bash", "--norc", "--noprofile", "-o", "pipefail"],
            cwd=folder,
            env=environment,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            start_new_session=True,
        )
        self._output = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    @property
    def output(self) -> str:
        """All output since the last command was typed."""
        return self._output

    @property
    def ended(self) -> bool:
        return self._process.poll() is not None

    def start(self, line: str) -> None:
        """Type a command that keeps running; the shell ends with it."""
        self._type(line, "exit")

    def run(self, line: str, *, timeout: float) -> tuple[int, str]:
        """Type a command, wait for its end and return its exit code and output."""
        mark = f"end-of-{uuid4().hex}"
        # The last line gives the exit code back to the shell, for a following `echo $?`.
        self._type(line, f"code_=$?; printf '\\n{mark} %s\\n' $code_; (exit $code_)")
        end = re.compile(rf"\n{mark} (\d+)\n")
        try:
            found = wait_until(lambda: end.search(self._output), timeout=timeout, what="the command")
        except Exception as error:
            raise AssertionError(f"{line}\ndid not end in {timeout} s:\n{self._output}") from error
        assert found
        return int(found[1]), self._output[: found.start()]

    def close(self) -> None:
        """Send Ctrl-C to a command that keeps running, and end the shell."""
        assert self._process.stdin
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGINT)
        with suppress(BrokenPipeError):
            self._process.stdin.close()
        try:
            self._process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)
            self._process.wait()
        self._reader.join(5)

    def _type(self, *lines: str) -> None:
        assert self._process.stdin
        self._output = ""
        # Braces keep the effects of the command in this shell; the shell's input is not the command's.
        first, *others = lines
        self._process.stdin.write("\n".join([f"{{ {first}\n}} </dev/null", *others, ""]).encode())
        self._process.stdin.flush()

    def _read(self) -> None:
        assert self._process.stdout
        decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        while data := os.read(self._process.stdout.fileno(), 65_536):
            self._output += decoder.decode(data)
        self._process.stdout.close()
