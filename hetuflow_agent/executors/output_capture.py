"""What functions print and log, sent to the log of the task they run for.

`sys.stdout`, `sys.stderr` and the root logger are shared by everything in the process, so each write asks a
context variable whose it is. Outside of a task nothing changes.
"""

from __future__ import annotations

import contextvars
import io
import logging
import math
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import BinaryIO, Final, TextIO

from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.processes.command import TOO_MUCH_OUTPUT
from hetuflow_core.client.task import LOGGER

_STREAMS: Final[contextvars.ContextVar[TaskStreams | None]] = contextvars.ContextVar("streams", default=None)
_FORMAT: Final = "%(levelname)s %(name)s: %(message)s"


class OutputLimit(BaseException):
    """Raised in a function that writes too much; not an Exception, so that few catch it."""


class TaskStreams:
    """The two files of one task; every write is one system call, so that lines of threads stay whole."""

    def __init__(self, directory: ClaimDirectory, limit: int | None = None) -> None:
        """`limit`: most bytes of both together; None for what never ends."""
        self._left = math.inf if limit is None else limit
        self.files: dict[str, BinaryIO] = {
            name: directory.stream(name).open("ab", buffering=0) for name in ("stdout", "stderr")
        }

    def write(self, name: str, text: str) -> None:
        """Raise OutputLimit instead of writing beyond the limit."""
        data = text.encode(errors="replace")
        if len(data) > self._left:
            raise OutputLimit(TOO_MUCH_OUTPUT)
        self._left -= len(data)
        self.files[name].write(data)

    def close(self) -> None:
        for file in self.files.values():
            file.close()

    @contextmanager
    def current(self) -> Iterator[None]:
        token = _STREAMS.set(self)
        try:
            yield
        finally:
            _STREAMS.reset(token)


class RoutedStream(io.TextIOBase):
    """Stands where `sys.stdout` or `sys.stderr` stood."""

    def __init__(self, name: str, outside: TextIO) -> None:
        self._name = name
        self._outside = outside

    def write(self, text: str, /) -> int:
        streams = _STREAMS.get()
        if streams is None:
            return self._outside.write(text)
        streams.write(self._name, text)
        return len(text)

    def flush(self) -> None:
        if _STREAMS.get() is None:
            self._outside.flush()

    def writable(self) -> bool:
        return True

    def isatty(self) -> bool:
        return _STREAMS.get() is None and self._outside.isatty()

    def fileno(self) -> int:
        return self._outside.fileno()

    @property
    def encoding(self) -> str:  # type: ignore[override]  # an attribute there, always this here
        return "utf-8"

    @property
    def outside(self) -> TextIO:
        return self._outside


class TaskLogHandler(logging.Handler):
    """Log lines of a task, to the task's standard error."""

    def __init__(self) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter(_FORMAT))

    def emit(self, record: logging.LogRecord) -> None:
        streams = _STREAMS.get()
        if streams is not None:
            try:
                streams.write("stderr", f"{self.format(record)}\n")
            except (OSError, ValueError):
                self.handleError(record)


def _outside_of_tasks(_record: logging.LogRecord) -> bool:
    return _STREAMS.get() is None


class Capturing:
    """Puts the routes in place and takes them away again."""

    def __init__(self) -> None:
        self._handler = TaskLogHandler()

    def ensure(self) -> None:
        """Before each task: somebody may have replaced a stream or set logging up anew."""
        root = logging.getLogger()
        if not (own := logging.getLogger(LOGGER)).level:
            own.setLevel(logging.INFO)  # however quiet the agent itself is
        if self._handler not in root.handlers:
            root.addHandler(self._handler)
        for handler in root.handlers:
            if handler is not self._handler:
                handler.addFilter(_outside_of_tasks)  # a second time changes nothing
        if not isinstance(sys.stdout, RoutedStream):
            sys.stdout = RoutedStream("stdout", sys.stdout)
        if not isinstance(sys.stderr, RoutedStream):
            sys.stderr = RoutedStream("stderr", sys.stderr)

    def end(self) -> None:
        root = logging.getLogger()
        root.removeHandler(self._handler)
        for handler in root.handlers:
            handler.removeFilter(_outside_of_tasks)
        if isinstance(sys.stdout, RoutedStream):
            sys.stdout = sys.stdout.outside
        if isinstance(sys.stderr, RoutedStream):
            sys.stderr = sys.stderr.outside
