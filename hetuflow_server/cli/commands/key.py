"""`hetuflow key create | list | get | revoke | rotate`; without a key `create` works on the database."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import click

from hetuflow_core.access.permissions import Permission
from hetuflow_core.access.roles import Role
from hetuflow_core.resources.identity import ApiKey, ApiKeyRequest, NewApiKey
from hetuflow_server.cli.commands.config import config_option
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.lazy_loading import load
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.layout import Column, Kind, Sheet, Table
from hetuflow_server.cli.output.long_lists import limit_option, page_size, take


@click.group("key")
def key_group() -> None:
    """API keys of people and programs."""


@key_group.command("create")
@click.option("--role", type=click.Choice([role.value for role in Role]), default="viewer", show_default=True)
@click.option(
    "--name", default="cli", show_default=True, help="What the key is for; shown in lists and on tasks."
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="PERMISSION",
    type=click.Choice([one.value for one in Permission]),
    help="Of what the role holds only this, as in logs.read. Repeatable.",
)
@click.option("--owner", default=None, metavar="USER", help="Whose key it is, if not your own.")
@click.option("--expires-in", metavar="DURATION", default=None, help="As in 12h or 90d; never if not given.")
@click.option("--rate", type=click.IntRange(min=1), default=None, help="Most requests a second.")
@config_option
@server_command
def create(
    invocation: Invocation,
    *,
    role: str,
    name: str,
    scopes: tuple[str, ...],
    owner: str | None,
    expires_in: str | None,
    rate: int | None,
    config_path: Path | None,
) -> None:
    """Make a key and show it this once; with -n it is good for that namespace only.

    With a key at hand it is made by the server and belongs to you. Without one it is made on the database
    (HETUFLOW_DATABASE__URL or app.toml), and no server needs to run.

    Example: export HETUFLOW_API_KEY=$(hetuflow key create --role admin -q)
    """
    asked = ApiKeyRequest(
        name, Role(role), invocation.given_namespace, list(scopes) or None, expires_in, rate, owner
    )
    made: NewApiKey = load("hetuflow_server.cli.credentials:create_key")(invocation, config_path, asked)
    show_credential(invocation, made, made.key, "HETUFLOW_API_KEY")


@key_group.command("list")
@click.option("--owner", default=None, metavar="USER", help="Only those of this user.")
@click.option("--state", type=click.Choice(["valid", "expired", "revoked"]), help="Only those.")
@limit_option
@server_command
def list_keys(invocation: Invocation, *, owner: str | None, state: str | None, limit: int) -> None:
    """List API keys: your own, or all if you may manage keys.

    Example: hetuflow key list --state valid
    """
    with invocation.client() as client:
        keys = client.api_keys(owner=owner, state=state, page_size=page_size(limit))
        found = take(invocation, keys, limit)
    invocation.show(found, human=lambda: [_table(found)], brief=[one.id for one in found])


@key_group.command("get")
@click.argument("key_id", metavar="ID", type=click.UUID)
@server_command
def get_key(invocation: Invocation, key_id: object) -> None:
    """Show one API key, without the key itself.

    Example: hetuflow key get 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        _show(invocation, client.api_key(str(key_id)))


@key_group.command("revoke")
@click.argument("key_id", metavar="ID", type=click.UUID)
@YES
@server_command
def revoke_key(invocation: Invocation, key_id: object) -> None:
    """End an API key, for good.

    Example: hetuflow key revoke 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    invocation.sure(f"Revoke the key {key_id} for good?")
    with invocation.client() as client:
        _show(invocation, client.revoke_api_key(str(key_id)))


@key_group.command("rotate")
@click.argument("key_id", metavar="ID", type=click.UUID)
@click.option("--grace", default="0s", show_default=True, help="How much longer the old key is good.")
@server_command
def rotate_key(invocation: Invocation, key_id: object, grace: str) -> None:
    """Make another key like this one, and let this one end.

    Example: hetuflow key rotate 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f --grace 1h -q
    """
    with invocation.client() as client:
        made = client.rotate_api_key(str(key_id), grace=grace)
    show_credential(invocation, made, made.key, "HETUFLOW_API_KEY")


def show_credential(invocation: Invocation, made: object, secret: str, variable: str) -> None:
    """Show a new credential: to people with a word of advice, to scripts alone."""
    advice = f"{secret}\n\nKeep it: it cannot be shown again. Use it as {variable}."
    invocation.show(made, human=lambda: [advice], brief=[secret])


def _show(invocation: Invocation, key: ApiKey) -> None:
    scopes = "all of its role" if key.scopes is None else ", ".join(key.scopes)
    sheet = Sheet(
        [
            ("id", str(key.id)),
            ("prefix", key.prefix),
            ("name", key.name),
            ("owner", key.owner),
            ("role", key.role.value),
            ("namespace", key.namespace or "all"),
            ("scopes", scopes),
            ("requests per second", key.requests_per_second),
            ("state", key.state),
            ("created", key.created_at),
            ("created by", key.created_by),
            ("expires", key.expires_at),
            ("last used", key.last_used_at),
            ("revoked", key.revoked_at),
        ]
    )
    invocation.show(key, human=lambda: [sheet], brief=[key.id])


def _table(keys: Sequence[ApiKey]) -> Table:
    columns = [
        Column("ID", Kind.ID),
        Column("PREFIX", Kind.ID),
        Column("NAME"),
        Column("OWNER"),
        Column("ROLE"),
        Column("NAMESPACE"),
        Column("STATE", Kind.STATUS),
        Column("EXPIRES", Kind.TIME),
        Column("LAST USED", Kind.TIME),
    ]
    rows = [
        [
            str(one.id),
            one.prefix,
            one.name,
            one.owner,
            one.role.value,
            one.namespace or "all",
            one.state,
            one.expires_at,
            one.last_used_at,
        ]
        for one in keys
    ]
    return Table(columns, rows)
