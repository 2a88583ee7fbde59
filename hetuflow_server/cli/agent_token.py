"""`hetuflow agent token create`: works on the database, so that the first agent needs no server."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import click

from hetuflow_core.durations import parse_duration
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.config import load_settings
from hetuflow_server.app.store import open_store
from hetuflow_server.cli.config import config_option
from hetuflow_server.services.access import Access
from hetuflow_server.settings import StoreSettings


@click.command("create")
@click.option("--name", default="agent", show_default=True, help="What the token is for.")
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    default=("default",),
    show_default=True,
    help="A namespace its agents may take work from; may be given several times.",
)
@click.option("--expires-in", metavar="DURATION", default=None, help="As in 12h or 90d; never if not given.")
@click.option("-q", "--quiet", is_flag=True, help="Print the token and nothing else.")
@config_option
def create(
    name: str,
    namespaces: tuple[str, ...],
    expires_in: str | None,
    quiet: bool,
    config_path: Path | None,
) -> None:
    """Make a token and show it this once.

    Needs the database (HETUFLOW_DATABASE__URL or app.toml), not a running server.

    Example: HETUFLOW_AGENT__TOKEN=$(hetuflow agent token create -q) hetuflow-agent
    """
    settings = load_settings(StoreSettings, config_path=config_path)
    lifetime: timedelta | None = parse_duration(expires_in) if expires_in else None

    async def make() -> str:
        async with open_store(settings.database) as database:
            access = Access(database, SystemClock())
            return await access.create_agent_token(name=name, namespaces=namespaces, expires_in=lifetime)

    token = asyncio.run(make())
    click.echo(
        token if quiet else f"{token}\n\nKeep it: it cannot be shown again. Use it as HETUFLOW_AGENT__TOKEN."
    )
