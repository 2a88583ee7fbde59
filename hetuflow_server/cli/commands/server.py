"""`hetuflow server` and `hetuflow server list | get`."""

from __future__ import annotations

from pathlib import Path
from uuid import UUID

import click

from hetuflow_server.cli.commands.config import config_option
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.lazy_loading import load
from hetuflow_server.cli.output.cluster import server_table
from hetuflow_server.cli.output.long_lists import limit_option, page_size, take


@click.group("server", invoke_without_command=True)
@config_option
@click.pass_context
def server(context: click.Context, config_path: Path | None) -> int:
    """Run a server until SIGINT or SIGTERM.

    The configuration is read from app.toml and HETUFLOW_SECTION__KEY variables, see `hetuflow config show`.

    Example: HETUFLOW_DATABASE__URL=postgresql://… HETUFLOW_SERVER__SECRET_KEY_FILE=key hetuflow server
    """
    if context.invoked_subcommand is not None:
        return 0
    load("hetuflow_core.runtime.lean_libraries")
    code: int = load("hetuflow_server.cli.serving:serve")(config_path)
    return code


@server.command("list")
@limit_option
@server_command
def list_servers(invocation: Invocation, limit: int) -> None:
    """List servers, newest first; stopped servers are listed for a day.

    Example: hetuflow server list -o json
    """
    with invocation.client() as client:
        servers = take(invocation, client.servers(page_size=page_size(limit)), limit)
    invocation.show(servers, human=lambda: [server_table(servers)], brief=[server.id for server in servers])


@server.command("get")
@click.argument("server_id", metavar="ID", type=click.UUID)
@server_command
def get_server(invocation: Invocation, server_id: UUID) -> None:
    """Show a server: its status, its role and the number of its namespaces.

    Example: hetuflow server get 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        server = client.server(server_id)
    invocation.show(server, human=lambda: [server_table([server])], brief=[server.id])
