"""Run a server. A separate module, so that `hetuflow server list` does not load the server."""

from __future__ import annotations

from pathlib import Path

import structlog
import uvloop

from hetuflow_core.runtime.config.loading import load_settings
from hetuflow_core.runtime.lifecycle import run_application
from hetuflow_core.runtime.log_files import log_stream
from hetuflow_core.runtime.logging import configure_logging
from hetuflow_server.app.server import build_server
from hetuflow_server.settings import ServerSettings

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.server")


def serve(config_path: Path | None) -> int:
    settings = load_settings(ServerSettings, config_path=config_path)
    configure_logging(settings.log.level, settings.log.format, log_stream(settings.log, "hetuflow-server"))
    application = build_server(settings, on_ready=_on_ready)
    return run_application(application, loop_factory=uvloop.new_event_loop)


def _on_ready(url: str) -> None:
    log.info("listening", url=url)
