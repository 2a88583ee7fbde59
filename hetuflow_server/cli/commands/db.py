"""`hetuflow db upgrade | current`."""

from __future__ import annotations

from pathlib import Path

import click

from hetuflow_core.runtime.config.loading import load_settings
from hetuflow_server.cli.commands.config import config_option
from hetuflow_server.postgres.revisions import known_revisions
from hetuflow_server.schema import migrate
from hetuflow_server.settings import StoreSettings


@click.group("db")
def db_group() -> None:
    """Migrate the database, with the same migrations as `alembic upgrade head`."""


@db_group.command("upgrade")
@config_option
def upgrade(config_path: Path | None) -> None:
    """Upgrade the schema. Safe on several hosts at once and while servers run.

    Example: HETUFLOW_DATABASE__URL=postgresql://… hetuflow db upgrade
    """
    url = _database_url(config_path)
    before = migrate.current(url).revision
    migrate.upgrade(url)
    after = migrate.current(url).revision
    click.echo(
        f"schema {after}, already up to date" if before == after else f"schema {before or 'none'} → {after}"
    )


@db_group.command("current")
@config_option
def current(config_path: Path | None) -> None:
    """Print the revision of the schema and the newest one.

    Example: hetuflow db current
    """
    state = migrate.current(_database_url(config_path))
    _, head = known_revisions()
    click.echo(f"database: {state.revision or 'none'}\ncode: {head}")


def _database_url(config_path: Path | None) -> str:
    return load_settings(StoreSettings, config_path=config_path).database.url.reveal()
