"""`hetuflow key create`: works on the database, so that the first key needs no key."""

from __future__ import annotations

import asyncio
from datetime import timedelta
from pathlib import Path

import click

from hetuflow_core.durations import parse_duration
from hetuflow_core.roles import Role
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.config import load_settings
from hetuflow_server.app.store import open_store
from hetuflow_server.cli.config import config_option
from hetuflow_server.services.access import Access
from hetuflow_server.settings import StoreSettings


@click.group("key")
def key_group() -> None:
    """API keys of people and programs."""


@key_group.command("create")
@click.option("--role", type=click.Choice([role.value for role in Role]), default="viewer", show_default=True)
@click.option(
    "--name", default="cli", show_default=True, help="What the key is for; shown in lists and on tasks."
)
@click.option("-n", "--namespace", default=None, help="The only namespace it is good for; all if not given.")
@click.option("--expires-in", metavar="DURATION", default=None, help="As in 12h or 90d; never if not given.")
@click.option("-q", "--quiet", is_flag=True, help="Print the key and nothing else.")
@config_option
def create(
    role: str,
    name: str,
    namespace: str | None,
    expires_in: str | None,
    quiet: bool,
    config_path: Path | None,
) -> None:
    """Make a key and show it this once.

    Needs the database (HETUFLOW_DATABASE__URL or app.toml), not a running server.

    Example: export HETUFLOW_API_KEY=$(hetuflow key create --role admin -q)
    """
    settings = load_settings(StoreSettings, config_path=config_path)
    lifetime: timedelta | None = parse_duration(expires_in) if expires_in else None

    async def make() -> str:
        async with open_store(settings.database) as database:
            access = Access(database, SystemClock())
            return await access.create_api_key(
                name=name,
                role=Role(role),
                namespace=namespace,
                expires_in=lifetime,
            )

    key = asyncio.run(make())
    click.echo(key if quiet else f"{key}\n\nKeep it: it cannot be shown again. Use it as HETUFLOW_API_KEY.")
