"""Logging and structlog are process-wide: a test that sets them up leaves them as it found them."""

from __future__ import annotations

import io
import json
import logging
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import structlog

from hetuflow_core.runtime.logging import LogHandler, configure_logging


@pytest.fixture
def untouched_logging() -> Iterator[None]:
    root = logging.getLogger()
    level, config = root.level, structlog.get_config()
    yield
    root.handlers[:] = [handler for handler in root.handlers if not isinstance(handler, LogHandler)]
    root.setLevel(level)
    structlog.configure(**config)
    structlog.contextvars.clear_contextvars()
    logging.captureWarnings(capture=False)


@pytest.fixture
def logged(untouched_logging: None) -> Callable[[], list[dict[str, Any]]]:
    """Everything logged so far, as the JSON lines it became."""
    stream = io.StringIO()
    configure_logging("debug", "json", stream)
    return lambda: [json.loads(line) for line in stream.getvalue().splitlines()]
