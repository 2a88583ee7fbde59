"""`hetuflow doctor`: reads the database directly, so it also works when no server runs."""

from __future__ import annotations

import asyncio
from pathlib import Path

import click

from hetuflow_core.errors import ConfigInvalid
from hetuflow_core.runtime.config.loading import load_settings
from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_server.app.direct_database import open_doctor
from hetuflow_server.app.server_keys import server_keys
from hetuflow_server.cli.commands.config import config_option
from hetuflow_server.cli.database import find_database
from hetuflow_server.cli.output.structured import as_json
from hetuflow_server.secrets.keyring import Keyring
from hetuflow_server.settings import ServerSettings
from hetuflow_server.upkeep.findings import Finding


@click.command("doctor")
@click.option("--repair", is_flag=True, help="Repair problems where possible.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="Output format.")
@config_option
def doctor(repair: bool, output: str, config_path: Path | None) -> int:
    """Check the database for inconsistencies: wrong counts, dangling rows, stuck work.

    Requires HETUFLOW_DATABASE__URL or app.toml; in the folder of a running `hetuflow dev` its database is
    used. Servers may keep running. The exit code is 0 if no problem remains and 1 otherwise.

    Example: hetuflow doctor --repair
    """
    settings = find_database(config_path, folder=Path.cwd())

    async def examine() -> list[Finding]:
        async with open_doctor(settings.database, _key_ids(config_path)) as opened:
            return await opened.examine(repair=repair)

    findings = asyncio.run(examine())
    if output == "json":
        click.echo(as_json(findings))
    else:
        for finding in findings:
            click.echo(f"{finding.message} {_counts(finding, repair=repair)}")
        if not findings:
            click.echo("No problems found.")
    return ExitCode.FAILURE if any(finding.left for finding in findings) else ExitCode.OK


def _key_ids(config_path: Path | None) -> list[str] | None:
    """Return the key ids of the servers if configured; all other checks need only the database."""
    try:
        server = load_settings(ServerSettings, config_path=config_path).server
    except ConfigInvalid:
        return None
    return Keyring(server_keys(server)).key_ids


def _counts(finding: Finding, *, repair: bool) -> str:
    if not repair:
        return f"({finding.count} found)"
    return f"({finding.count} found, {finding.repaired} repaired)"
