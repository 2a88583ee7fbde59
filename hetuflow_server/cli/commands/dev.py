"""`hetuflow dev`."""

from __future__ import annotations

import os
from pathlib import Path

import click
import uvloop

from hetuflow_core.runtime.lifecycle import run_application
from hetuflow_core.runtime.log_files import log_stream
from hetuflow_core.runtime.logging import configure_logging
from hetuflow_server.app.dev import DevSystem


@click.command("dev")
@click.option(
    "--port",
    default=8600,
    show_default=True,
    type=click.IntRange(0, 65_535),
    help="Port of the server; 0 picks a free port.",
)
@click.option(
    "--data",
    "data_dir",
    default=Path(".hetuflow"),
    show_default=True,
    type=click.Path(path_type=Path),
    metavar="DIR",
    help="Folder for the database and all other data.",
)
def dev(port: int, data_dir: Path) -> int:
    """Run embedded PostgreSQL, one server and one agent on this machine; Ctrl-C stops them all.

    Data is kept between runs. If HETUFLOW_DATABASE__URL is set, that database is used.

    Example: hetuflow dev --port 8700 --data /tmp/try
    """
    system = DevSystem(data_dir=data_dir, port=port, env=os.environ, on_ready=_welcome)
    configure_logging(system.log.level, system.log.format, log_stream(system.log, "hetuflow-server"))
    return run_application(system.application(), loop_factory=uvloop.new_event_loop)


def _welcome(system: DevSystem) -> None:
    url, folder = system.listener.url, system.folder
    click.echo(
        f"""
Hetuflow is ready at {url}

  A first job     hetuflow apply -f examples/hello.yaml && hetuflow job run hello --logs
  API key         {folder.secret("api_key")} (commands in this folder use it automatically)
  Health check    curl {url}/readyz
  Connection data {folder.info_file}: address, key, database and process ids
  Start over      stop it and delete {folder.path}
  Stop            Ctrl-C
""",
    )
