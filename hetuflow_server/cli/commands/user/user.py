"""`hetuflow user …`; without a key it writes to the database directly, which creates the first user."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any

import click

from hetuflow_core.access.permissions import Permission
from hetuflow_core.access.roles import Role
from hetuflow_core.client import Hetuflow
from hetuflow_core.errors import Invalid
from hetuflow_core.resources.identity import GrantRequest, User, UserGrant, UserRequest
from hetuflow_server.cli.bootstrap import DATABASE_OPERATOR as WHO, on_server_or_database
from hetuflow_server.cli.commands.config import config_option
from hetuflow_server.cli.commands.user.sessions import end_session, list_sessions
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.layout import Column, Kind, Sheet, Table
from hetuflow_server.cli.output.long_lists import limit_option, page_size, take
from hetuflow_server.identity.logins.passwords import Passwords
from hetuflow_server.identity.users.service import Users

_MOST_ON_DATABASE = 500
_PERMISSIONS = click.Choice([permission.value for permission in Permission])

role_option = click.option("--role", type=click.Choice([role.value for role in Role]), help="Role to grant.")
password_stdin_option = click.option(
    "--password-stdin", is_flag=True, help="Read the password from the first line of standard input."
)


@click.group("user")
def user_group() -> None:
    """Create, list, change, disable and delete users; grant and revoke roles.

    If you are logged in or have a key, these commands use the server. Otherwise they use the database
    directly (HETUFLOW_DATABASE__URL or app.toml); no server is needed.
    """


user_group.add_command(list_sessions)
user_group.add_command(end_session)


@user_group.command("create")
@click.argument("name")
@role_option
@click.option("--display-name", default=None, help="Name to show.")
@password_stdin_option
@click.option(
    "--no-password",
    is_flag=True,
    help="Create the user without a password, for login through an identity provider.",
)
@config_option
@server_command
def create_user(
    invocation: Invocation,
    *,
    name: str,
    role: str | None,
    display_name: str | None,
    password_stdin: bool,
    no_password: bool,
    config_path: Path | None,
) -> None:
    """Create a user.

    --role grants a role in the namespace of -n, or in all namespaces.

    Example: hetuflow user create ann --role editor -n team-a
    """
    password = None if no_password else read_password(stdin=password_stdin, confirm=True)
    given, namespace = (Role(role), invocation.given_namespace) if role else (None, None)
    request = UserRequest(name, password, display_name, given, namespace)
    _act_on_user(
        invocation,
        config_path,
        lambda client: client.create_user(
            name, password=password, display_name=display_name, role=given, namespace=namespace
        ),
        lambda users: users.create(WHO, request),
    )


@user_group.command("list")
@limit_option
@config_option
@server_command
def list_users(invocation: Invocation, *, limit: int, config_path: Path | None) -> None:
    """List users and their grants.

    Example: hetuflow user list
    """

    def on_server(client: Hetuflow) -> list[User]:
        return take(invocation, client.users(page_size=page_size(limit)), limit)

    async def on_database(database: Any, clock: Any) -> list[User]:
        users = Users(database, Passwords(), clock)
        page, _ = await users.list_users(after=None, limit=min(limit, _MOST_ON_DATABASE), cap=limit)
        return take(invocation, page, limit)

    users = on_server_or_database(invocation, config_path, on_server, on_database)
    invocation.show(users, human=lambda: [_table(users)], brief=[user.name for user in users])


@user_group.command("get")
@click.argument("name")
@config_option
@server_command
def get_user(invocation: Invocation, *, name: str, config_path: Path | None) -> None:
    """Show a user and their grants.

    Example: hetuflow user get ann -o json
    """
    _act_on_user(
        invocation, config_path, lambda client: client.user(name), lambda users: users.user(WHO, name)
    )


@user_group.command("set")
@click.argument("name")
@click.option("--display-name", required=True, help='Name to show; "" removes it.')
@server_command
def set_user(invocation: Invocation, *, name: str, display_name: str) -> None:
    """Change the display name of a user.

    Example: hetuflow user set ann --display-name "Ann Example"
    """
    with invocation.client() as client:
        _show(invocation, client.change_user(name, display_name=display_name or None))


@user_group.command("passwd")
@click.argument("name", required=False)
@password_stdin_option
@click.option("--remove", is_flag=True, help="Remove the password.")
@config_option
@server_command
def passwd(
    invocation: Invocation, *, name: str | None, password_stdin: bool, remove: bool, config_path: Path | None
) -> None:
    """Change the password of a user and end their login sessions.

    Without NAME, you change your password and are asked for the current one first.

    Example: hetuflow user passwd ann
    """
    if name is None:
        _change_own_password(invocation, stdin=password_stdin, remove=remove)
        return
    password = None if remove else read_password(stdin=password_stdin, confirm=True)
    _act_on_user(
        invocation,
        config_path,
        lambda client: client.set_password(name, password),
        lambda users: users.set_password(WHO, name, password),
    )


@user_group.command("disable")
@click.argument("name")
@config_option
@server_command
def disable_user(invocation: Invocation, *, name: str, config_path: Path | None) -> None:
    """Disable a user: their password, sessions and keys stop working.

    Example: hetuflow user disable ann
    """
    _act_on_user(
        invocation,
        config_path,
        lambda client: client.disable_user(name),
        lambda users: users.set_disabled(WHO, name, disabled=True),
    )


@user_group.command("enable")
@click.argument("name")
@config_option
@server_command
def enable_user(invocation: Invocation, *, name: str, config_path: Path | None) -> None:
    """Enable a disabled user.

    Example: hetuflow user enable ann
    """
    _act_on_user(
        invocation,
        config_path,
        lambda client: client.enable_user(name),
        lambda users: users.set_disabled(WHO, name, disabled=False),
    )


@user_group.command("delete")
@click.argument("name")
@YES
@config_option
@server_command
def delete_user(invocation: Invocation, *, name: str, config_path: Path | None) -> None:
    """Delete a user and their keys.

    Tasks and audit entries keep the name.

    Example: hetuflow user delete ann --yes
    """
    invocation.confirm(f"Delete the user {name} and their keys?", asks_scripts=True)
    on_server_or_database(
        invocation,
        config_path,
        lambda client: client.delete_user(name),
        lambda database, clock: Users(database, Passwords(), clock).delete(WHO, name),
    )
    invocation.show_deleted("User", name)


@user_group.command("grant")
@click.argument("name")
@click.option(
    "--role", type=click.Choice([role.value for role in Role]), required=True, help="Role to grant."
)
@click.option(
    "--also",
    multiple=True,
    type=_PERMISSIONS,
    metavar="PERMISSION",
    help="Grant this permission in addition to the role. Repeatable.",
)
@click.option(
    "--without",
    multiple=True,
    type=_PERMISSIONS,
    metavar="PERMISSION",
    help="Withhold this permission of the role. Repeatable.",
)
@config_option
@server_command
def grant(
    invocation: Invocation,
    *,
    name: str,
    role: str,
    also: tuple[str, ...],
    without: tuple[str, ...],
    config_path: Path | None,
) -> None:
    """Grant a role in the namespace of -n, or in all namespaces.

    It replaces the previous grant there. A permission withheld with --without is also withheld from other
    grants there.

    Example: hetuflow user grant ann --role operator -n team-a --without logs.read
    """
    namespace = invocation.given_namespace
    request = GrantRequest(Role(role), namespace, list(also), list(without))
    _act_on_user(
        invocation,
        config_path,
        lambda client: client.grant(name, role, namespace=namespace, also=also, without=without),
        lambda users: users.grant(WHO, name, request),
    )


@user_group.command("revoke")
@click.argument("name")
@config_option
@server_command
def revoke(invocation: Invocation, *, name: str, config_path: Path | None) -> None:
    """Revoke the grant in the namespace of -n, or in all namespaces.

    Example: hetuflow user revoke ann -n team-a
    """
    namespace = invocation.given_namespace
    _act_on_user(
        invocation,
        config_path,
        lambda client: client.revoke(name, namespace=namespace),
        lambda users: users.revoke(WHO, name, namespace),
    )


def _change_own_password(invocation: Invocation, *, stdin: bool, remove: bool) -> None:
    if remove:
        raise click.UsageError("--remove needs the NAME of a user.")
    current = read_password(stdin=stdin, confirm=False, what="Current password")
    password = read_password(stdin=stdin, confirm=True, what="New password")
    with invocation.client() as client:
        client.change_password(current, password)
    invocation.note("Password changed.")


def read_password(*, stdin: bool, confirm: bool, what: str = "Password") -> str:
    """Prompt for a password without echo, or read it from the next line of standard input."""
    if stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise Invalid("There is no terminal to prompt for the password: use --password-stdin.")
    entered: str = click.prompt(what, hide_input=True, confirmation_prompt=confirm, err=True)
    return entered


def _act_on_user(
    invocation: Invocation,
    config_path: Path | None,
    on_server: Callable[[Hetuflow], User],
    on_database: Callable[[Users], Awaitable[User]],
) -> None:
    """Change or read a user, on the server or in the database, and show it."""
    user = on_server_or_database(
        invocation,
        config_path,
        on_server,
        lambda database, clock: on_database(Users(database, Passwords(), clock)),
    )
    _show(invocation, user)


def _show(invocation: Invocation, user: User) -> None:
    invocation.show(user, human=lambda: [_sheet(user), _grants(user.grants)], brief=[user.name])


def _sheet(user: User) -> Sheet:
    return Sheet(
        [
            ("name", user.name),
            ("display name", user.display_name),
            ("state", _state(user)),
            ("password", "yes" if user.has_password else "no"),
            ("identity provider", user.issuer),
            ("created", user.created_at),
            ("last login", user.last_login_at),
        ]
    )


def _grants(grants: Sequence[UserGrant]) -> Table:
    columns = [Column("NAMESPACE"), Column("ROLE"), Column("ALSO"), Column("WITHOUT"), Column("ORIGIN")]
    rows = [
        [
            grant.namespace or "all",
            grant.role.value,
            ", ".join(grant.also),
            ", ".join(grant.without),
            grant.origin,
        ]
        for grant in grants
    ]
    return Table(columns, rows)


def _table(users: Sequence[User]) -> Table:
    columns = [
        Column("NAME"),
        Column("DISPLAY NAME"),
        Column("STATE", Kind.STATUS),
        Column("GRANTS"),
        Column("LAST LOGIN", Kind.TIME),
    ]
    rows = [
        [user.name, user.display_name, _state(user), ", ".join(map(_brief, user.grants)), user.last_login_at]
        for user in users
    ]
    return Table(columns, rows)


def _brief(grant: UserGrant) -> str:
    return f"{grant.role.value} in {grant.namespace or 'all'}"


def _state(user: User) -> str:
    return "disabled" if user.disabled else "enabled"
