"""`hetuflow doctor`: works on the database, so that it also helps when no server runs."""

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
@click.option("--repair", is_flag=True, help="Put right what can be.")
@click.option("-o", "--output", type=click.Choice(["text", "json"]), default="text", help="How to print it.")
@config_option
def doctor(repair: bool, output: str, config_path: Path | None) -> int:
    """Look for what should not be in the database: wrong counts, rows that refer to nothing, stuck work.

    Needs the database (HETUFLOW_DATABASE__URL or app.toml; in the folder of a running `hetuflow dev` it
    finds that one's); servers may go on running. Exits with 0 when nothing is wrong (any more) and with 1
    when something is and was not put right.

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
            click.echo(f"{finding.message} {_what_was_done(finding, repair=repair)}")
        if not findings:
            click.echo("Nothing is wrong.")
    return ExitCode.FAILURE if any(finding.left for finding in findings) else ExitCode.OK


def _key_ids(config_path: Path | None) -> list[str] | None:
    """Return the ids of the servers' keys where these are set; the database alone is enough for the rest."""
    try:
        server = load_settings(ServerSettings, config_path=config_path).server
    except ConfigInvalid:
        return None
    return Keyring(server_keys(server)).key_ids


def _what_was_done(finding: Finding, *, repair: bool) -> str:
    if not repair:
        return f"({finding.count} found)"
    return f"({finding.count} found, {finding.repaired} put right)"
