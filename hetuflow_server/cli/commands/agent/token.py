"""`hetuflow agent token create | list | revoke`; without a key `create` works on the database."""

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
    """Tokens that let agents in."""


@token_group.command("create")
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
    """Make a token and show it this once.

    With a key at hand it is made by the server. Without one it is made on the database
    (HETUFLOW_DATABASE__URL or app.toml), and no server needs to run.

    Example: HETUFLOW_AGENT__TOKEN=$(hetuflow agent token create -q) hetuflow-agent
    """
    asked = AgentTokenRequest(name, list(namespaces), expires_in)
    made: NewAgentToken = load("hetuflow_server.cli.credentials:create_token")(invocation, config_path, asked)
    show_credential(invocation, made, made.token, "HETUFLOW_AGENT__TOKEN")


@token_group.command("list")
@limit_option
@server_command
def list_tokens(invocation: Invocation, limit: int) -> None:
    """List tokens of agents, without the tokens themselves.

    Example: hetuflow agent token list
    """
    with invocation.client() as client:
        found = take(invocation, client.agent_tokens(page_size=page_size(limit)), limit)
    invocation.show(found, human=lambda: [_table(found)], brief=[one.id for one in found])


@token_group.command("get")
@click.argument("token_id", metavar="ID", type=click.UUID)
@server_command
def get_token(invocation: Invocation, token_id: object) -> None:
    """Show one token, without the token itself.

    Example: hetuflow agent token get 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        found = client.agent_token(str(token_id))
    invocation.show(found, human=lambda: [_table([found])], brief=[found.id])


@token_group.command("revoke")
@click.argument("token_id", metavar="ID", type=click.UUID)
@YES
@server_command
def revoke_token(invocation: Invocation, token_id: object) -> None:
    """End a token, for good: its agents get nothing any more.

    Example: hetuflow agent token revoke 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    invocation.sure(f"Revoke the token {token_id} for good?")
    with invocation.client() as client:
        ended = client.revoke_agent_token(str(token_id))
    invocation.show(ended, human=lambda: [_table([ended])], brief=[ended.id])


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
            str(one.id),
            one.prefix,
            one.name,
            ", ".join(one.namespaces),
            one.agents,
            one.state,
            one.expires_at,
            one.last_used_at,
        ]
        for one in tokens
    ]
    return Table(columns, rows)
