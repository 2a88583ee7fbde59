"""Logging of a process: structlog and the standard library's loggers share one renderer on stderr.

Lines are readable text on a terminal and JSON objects elsewhere. Every value is redacted, so that no
credential reaches the log even if code logs a whole header or address.
"""

from __future__ import annotations

import json
import logging
import sys
from collections.abc import Mapping
from contextlib import suppress
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Final, Literal, TextIO, get_args

import structlog
from structlog.typing import EventDict, Processor, WrappedLogger

from hetuflow_core.errors import ConfigInvalid
from hetuflow_core.runtime.redaction import DROPPED_KEYS, redact
from hetuflow_core.runtime.terminal import coloured, is_terminal

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["auto", "console", "json"]

# These loggers are too verbose at INFO; their warnings still appear.
_QUIET: Final = ("apscheduler", "httpcore", "httpx", "sqlalchemy", "uvicorn.access")
# These loggers install handlers, which would print every line twice.
_OWN_HANDLERS: Final = ("uvicorn", "uvicorn.error", "uvicorn.access", "alembic", "apscheduler", "sqlalchemy")

_request: ContextVar[Mapping[str, str]] = ContextVar("request", default={})  # noqa: B039 - never changed


def _merge_request(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {**_request.get(), **event}


# One list for all calls: cached loggers see the changes that `structlog.testing.capture_logs` makes to it.
_TO_STANDARD_LIBRARY: Final[list[Processor]] = [
    structlog.stdlib.filter_by_level,
    structlog.contextvars.merge_contextvars,
    _merge_request,
    structlog.stdlib.PositionalArgumentsFormatter(),
    structlog.stdlib.ProcessorFormatter.wrap_for_formatter,
]


def configure_logging(
    level: LogLevel = "info", log_format: LogFormat = "auto", stream: TextIO | None = None
) -> None:
    """Send all logging to `stream` (stderr). A later call replaces an earlier one."""
    if level not in get_args(LogLevel):
        raise ConfigInvalid(f"Log level {level!r} is unknown: use {', '.join(get_args(LogLevel))}.")
    if log_format not in get_args(LogFormat):
        raise ConfigInvalid(f"Log format {log_format!r} is unknown: use {', '.join(get_args(LogFormat))}.")
    target = sys.stderr if stream is None else stream
    handler = LogHandler(target)
    handler.setFormatter(_formatter(log_format, target))
    _route_standard_library(handler, level)
    # Level, renderer and stream are set in the standard library, so that structlog loggers can be cached.
    structlog.configure(
        processors=_TO_STANDARD_LIBRARY,
        wrapper_class=structlog.stdlib.BoundLogger,
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=True,
    )


class bind_request:  # noqa: N801 - used like a function: `with bind_request(…):`
    """Add both ids to every line logged within the block, also by tasks started in it.

    One context variable for both: structlog uses one per id, which takes ten times as long per request.
    """

    __slots__ = ("_ids", "_token")

    def __init__(self, *, request_id: str, trace_id: str) -> None:
        self._ids = {"request_id": request_id, "trace_id": trace_id}

    def __enter__(self) -> None:
        self._token = _request.set(self._ids)

    def __exit__(self, *_: object) -> None:
        _request.reset(self._token)


class LogHandler(logging.StreamHandler[TextIO]):
    """Ignores write errors: losing a log line is better than ending the program."""

    def handleError(self, record: logging.LogRecord) -> None:  # noqa: N802  the name is the standard library's
        error = type(sys.exc_info()[1]).__name__
        line = {"event": "log line could not be written", "logger": record.name, "error": error}
        with suppress(OSError, ValueError, AttributeError):  # the stream is broken, closed or absent
            self.stream.write(json.dumps(line) + "\n")
            self.stream.flush()


def _formatter(log_format: LogFormat, target: TextIO) -> logging.Formatter:
    for_people = log_format == "console" or (log_format == "auto" and is_terminal(target))
    renderer: Processor
    if for_people:
        # The default traceback shows local variables, and with them secrets.
        renderer = structlog.dev.ConsoleRenderer(
            colors=coloured(target), exception_formatter=structlog.dev.plain_traceback, sort_keys=False
        )
    else:
        # ASCII only, so that the line is valid JSON in any stream encoding.
        renderer = structlog.processors.JSONRenderer(serializer=json.dumps, default=repr)
    return structlog.stdlib.ProcessorFormatter(
        foreign_pre_chain=[structlog.contextvars.merge_contextvars, _merge_request],
        processors=[
            _add_origin,
            structlog.processors.StackInfoRenderer(),
            structlog.processors.format_exc_info,
            _redact_event,
            renderer,
        ],
    )


def _add_origin(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    """Put time, level and logger of the record at the beginning of the line."""
    record: logging.LogRecord = event.pop("_record")
    event.pop("_from_structlog")
    time = datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds")
    return {
        "timestamp": time.replace("+00:00", "Z"),
        "level": record.levelname.lower(),
        "logger": record.name,
        "event": event.pop("event", ""),
        **event,
    }


def _redact_event(_logger: WrappedLogger, _method: str, event: EventDict) -> EventDict:
    return {key: redact(key, value) for key, value in event.items() if key not in DROPPED_KEYS}


def _route_standard_library(handler: logging.Handler, level: LogLevel) -> None:
    root = logging.getLogger()
    for former in [existing for existing in root.handlers if isinstance(existing, LogHandler)]:
        root.removeHandler(former)
    root.addHandler(handler)
    root.setLevel(level.upper())
    for name in _OWN_HANDLERS:
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
    for name in _QUIET:
        logging.getLogger(name).setLevel(max(logging.WARNING, root.level))
    logging.captureWarnings(capture=True)
