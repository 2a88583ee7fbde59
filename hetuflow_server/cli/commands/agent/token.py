"""`hetuflow agent token create | list | revoke`; without a key, `create` writes to the database directly."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hetuflow_core.resources.identity import AgentToken, AgentTokenRequest, NewAgentToken
from hetuflow_server.cli.commands.config import config_option
from hetuflow_server.cli.commands.key import show_credential
from hetuflow_server.cli.invocation import Invocation, server_command, server_command_of_any_namespace
from hetuflow_server.cli.lazy_loading import load
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.layout import Column, Kind, Table
from hetuflow_server.cli.output.long_lists import limit_option, page_size, take


@click.group("token")
def token_group() -> None:
    """Create, list and revoke the tokens of agents."""


@token_group.command("create")
@click.option("--name", default="agent", show_default=True, help="Purpose of the token.")
@click.option(
    "-n",
    "--namespace",
    "namespaces",
    multiple=True,
    default=("default",),
    show_default=True,
    help="Namespace that its agents may serve. Repeatable.",
)
@click.option(
    "--expires-in",
    metavar="DURATION",
    default=None,
    help="Lifetime, such as 12h or 90d; unlimited if not given.",
)
@config_option
@server_command_of_any_namespace
def create(
    invocation: Invocation,
    *,
    name: str,
    namespaces: tuple[str, ...],
    expires_in: str | None,
    config_path: Path | None,
) -> None:
    """Create an agent token and print it. It is shown only once.

    If you are logged in or have a key, the server creates it. Otherwise it is created in the database
    directly (HETUFLOW_DATABASE__URL or app.toml); no server is needed.

    Example: HETUFLOW_AGENT__TOKEN=$(hetuflow agent token create -q) hetuflow-agent
    """
    request = AgentTokenRequest(name, list(namespaces), expires_in)
    created: NewAgentToken = load("hetuflow_server.cli.credentials:create_token")(
        invocation, config_path, request
    )
    show_credential(invocation, created, created.token, "HETUFLOW_AGENT__TOKEN")


@token_group.command("list")
@limit_option
@server_command
def list_tokens(invocation: Invocation, limit: int) -> None:
    """List agent tokens, without the secrets.

    Example: hetuflow agent token list
    """
    with invocation.client() as client:
        tokens = take(invocation, client.agent_tokens(page_size=page_size(limit)), limit)
    invocation.show(tokens, human=lambda: [_table(tokens)], brief=[token.id for token in tokens])


@token_group.command("get")
@click.argument("token_id", metavar="ID", type=click.UUID)
@server_command
def get_token(invocation: Invocation, token_id: object) -> None:
    """Show an agent token, without the secret.

    Example: hetuflow agent token get 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        token = client.agent_token(str(token_id))
    invocation.show(token, human=lambda: [_table([token])], brief=[token.id])


@token_group.command("revoke")
@click.argument("token_id", metavar="ID", type=click.UUID)
@YES
@server_command
def revoke_token(invocation: Invocation, token_id: object) -> None:
    """Revoke an agent token permanently; its agents get no more work.

    Example: hetuflow agent token revoke 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    invocation.confirm(f"Revoke the token {token_id} permanently?")
    with invocation.client() as client:
        token = client.revoke_agent_token(str(token_id))
    invocation.show(token, human=lambda: [_table([token])], brief=[token.id])


def _table(tokens: Sequence[AgentToken]) -> Table:
    columns = [
        Column("ID", Kind.ID),
        Column("PREFIX", Kind.ID),
        Column("NAME"),
        Column("NAMESPACES"),
        Column("AGENTS", Kind.NUMBER),
        Column("STATE", Kind.STATUS),
        Column("EXPIRES", Kind.TIME),
        Column("LAST USED", Kind.TIME),
    ]
    rows = [
        [
            str(token.id),
            token.prefix,
            token.name,
            ", ".join(token.namespaces),
            token.agents,
            token.state,
            token.expires_at,
            token.last_used_at,
        ]
        for token in tokens
    ]
    return Table(columns, rows)
