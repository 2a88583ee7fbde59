"""`hetuflow key create | list | get | revoke | rotate`; without a key, `create` uses the database."""

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
    """Create, list, rotate and revoke API keys."""


@key_group.command("create")
@click.option(
    "--role",
    type=click.Choice([role.value for role in Role]),
    default="viewer",
    show_default=True,
    help="Role of the key.",
)
@click.option(
    "--name", default="cli", show_default=True, help="Purpose of the key; shown in lists and on tasks."
)
@click.option(
    "--scope",
    "scopes",
    multiple=True,
    metavar="PERMISSION",
    type=click.Choice([permission.value for permission in Permission]),
    help="Restrict the key to this permission of its role, such as logs.read. Repeatable.",
)
@click.option("--owner", default=None, metavar="USER", help="User that owns the key; you if not given.")
@click.option(
    "--expires-in",
    metavar="DURATION",
    default=None,
    help="Lifetime, such as 12h or 90d; unlimited if not given.",
)
@click.option(
    "--rate", type=click.IntRange(min=1), default=None, help="Maximum number of requests per second."
)
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
    """Create an API key and print it.

    The key is shown only once. With -n, it is valid in that namespace only. If you are logged in or have a
    key, the server creates it. Otherwise it is created in the database directly (HETUFLOW_DATABASE__URL or
    app.toml); no server is needed.

    Example: export HETUFLOW_API_KEY=$(hetuflow key create --role admin -q)
    """
    request = ApiKeyRequest(
        name, Role(role), invocation.given_namespace, list(scopes) or None, expires_in, rate, owner
    )
    created: NewApiKey = load("hetuflow_server.cli.credentials:create_key")(invocation, config_path, request)
    show_credential(invocation, created, created.key, "HETUFLOW_API_KEY")


@key_group.command("list")
@click.option("--owner", default=None, metavar="USER", help="Only keys of this user.")
@click.option("--state", type=click.Choice(["valid", "expired", "revoked"]), help="Only keys in this state.")
@limit_option
@server_command
def list_keys(invocation: Invocation, *, owner: str | None, state: str | None, limit: int) -> None:
    """List your API keys, or all keys if you have permission to manage them.

    Example: hetuflow key list --state valid
    """
    with invocation.client() as client:
        keys = client.api_keys(owner=owner, state=state, page_size=page_size(limit))
        listed = take(invocation, keys, limit)
    invocation.show(listed, human=lambda: [_table(listed)], brief=[key.id for key in listed])


@key_group.command("get")
@click.argument("key_id", metavar="ID", type=click.UUID)
@server_command
def get_key(invocation: Invocation, key_id: object) -> None:
    """Show an API key, without the secret.

    Example: hetuflow key get 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    with invocation.client() as client:
        _show(invocation, client.api_key(str(key_id)))


@key_group.command("revoke")
@click.argument("key_id", metavar="ID", type=click.UUID)
@YES
@server_command
def revoke_key(invocation: Invocation, key_id: object) -> None:
    """Revoke an API key permanently.

    Example: hetuflow key revoke 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f
    """
    invocation.confirm(f"Revoke the key {key_id} permanently?")
    with invocation.client() as client:
        _show(invocation, client.revoke_api_key(str(key_id)))


@key_group.command("rotate")
@click.argument("key_id", metavar="ID", type=click.UUID)
@click.option("--grace", default="0s", show_default=True, help="How long the old key stays valid.")
@server_command
def rotate_key(invocation: Invocation, key_id: object, grace: str) -> None:
    """Replace an API key with a new one that has the same rights.

    Example: hetuflow key rotate 01890f3e-7b3c-7cc0-98c4-dc0c0c07398f --grace 1h -q
    """
    with invocation.client() as client:
        created = client.rotate_api_key(str(key_id), grace=grace)
    show_credential(invocation, created, created.key, "HETUFLOW_API_KEY")


def show_credential(invocation: Invocation, created: object, secret: str, variable: str) -> None:
    """Show a new credential, with advice unless --quiet is given."""
    advice = f"{secret}\n\nStore it now: it is not shown again. Use it as {variable}."
    invocation.show(created, human=lambda: [advice], brief=[secret])


def _show(invocation: Invocation, key: ApiKey) -> None:
    scopes = "all permissions of the role" if key.scopes is None else ", ".join(key.scopes)
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
            str(key.id),
            key.prefix,
            key.name,
            key.owner,
            key.role.value,
            key.namespace or "all",
            key.state,
            key.expires_at,
            key.last_used_at,
        ]
        for key in keys
    ]
    return Table(columns, rows)
