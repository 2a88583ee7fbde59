"""`hetuflow user …`; without a key it works on the database, so that the first user needs nobody."""

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
from hetuflow_server.cli.bootstrap import OPERATOR_OF_THE_DATABASE as WHO, on_server_or_database
from hetuflow_server.cli.commands.config import config_option
from hetuflow_server.cli.commands.user.sessions import end_session, list_sessions
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.layout import Column, Kind, Sheet, Table
from hetuflow_server.cli.output.long_lists import limit_option, page_size, take
from hetuflow_server.identity.logins.passwords import Passwords
from hetuflow_server.identity.users.service import Users

_MOST_ON_DATABASE = 500
_PERMISSIONS = click.Choice([one.value for one in Permission])

role_option = click.option("--role", type=click.Choice([role.value for role in Role]))
password_stdin_option = click.option(
    "--password-stdin", is_flag=True, help="Read the password from the first line of standard input."
)


@click.group("user")
def user_group() -> None:
    """People, what they may do, and whether they are let in.

    With a key at hand the server is asked. Without one these commands work on the database
    (HETUFLOW_DATABASE__URL or app.toml), and no server needs to run.
    """


user_group.add_command(list_sessions)
user_group.add_command(end_session)


@user_group.command("create")
@click.argument("name")
@role_option
@click.option("--display-name", default=None, help="How people call it.")
@password_stdin_option
@click.option("--no-password", is_flag=True, help="Let only an identity provider vouch for it.")
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
    """Make a user; with --role it is granted that role, in the namespace of -n or in all.

    Example: hetuflow user create ann --role editor -n team-a
    """
    password = None if no_password else read_password(stdin=password_stdin, confirm=True)
    given, namespace = (Role(role), invocation.given_namespace) if role else (None, None)
    asked = UserRequest(name, password, display_name, given, namespace)
    _one(
        invocation,
        config_path,
        lambda client: client.create_user(
            name, password=password, display_name=display_name, role=given, namespace=namespace
        ),
        lambda users: users.create(WHO, asked),
    )


@user_group.command("list")
@limit_option
@config_option
@server_command
def list_users(invocation: Invocation, *, limit: int, config_path: Path | None) -> None:
    """List users and what they are granted.

    Example: hetuflow user list
    """

    def on_server(client: Hetuflow) -> list[User]:
        return take(invocation, client.users(page_size=page_size(limit)), limit)

    async def on_database(database: Any, clock: Any) -> list[User]:
        users = Users(database, Passwords(), clock)
        found, _ = await users.list_users(after=None, limit=min(limit, _MOST_ON_DATABASE), cap=limit)
        return take(invocation, found, limit)

    found = on_server_or_database(invocation, config_path, on_server, on_database)
    invocation.show(found, human=lambda: [_table(found)], brief=[one.name for one in found])


@user_group.command("get")
@click.argument("name")
@config_option
@server_command
def get_user(invocation: Invocation, *, name: str, config_path: Path | None) -> None:
    """Show a user and what it is granted.

    Example: hetuflow user get ann -o json
    """
    _one(invocation, config_path, lambda client: client.user(name), lambda users: users.user(WHO, name))


@user_group.command("set")
@click.argument("name")
@click.option("--display-name", required=True, help='How people call it; "" takes it away.')
@server_command
def set_user(invocation: Invocation, *, name: str, display_name: str) -> None:
    """Change how a user is called.

    Example: hetuflow user set ann --display-name "Ann Example"
    """
    with invocation.client() as client:
        _show(invocation, client.change_user(name, display_name=display_name or None))


@user_group.command("passwd")
@click.argument("name", required=False)
@password_stdin_option
@click.option("--remove", is_flag=True, help="Take the password away.")
@config_option
@server_command
def passwd(
    invocation: Invocation, *, name: str | None, password_stdin: bool, remove: bool, config_path: Path | None
) -> None:
    """Give a user another password; whoever is logged in with the old one is logged out.

    Without a NAME it is your own password, and you are asked for the present one first.

    Example: hetuflow user passwd ann
    """
    if name is None:
        _change_own_password(invocation, stdin=password_stdin, remove=remove)
        return
    password = None if remove else read_password(stdin=password_stdin, confirm=True)
    _one(
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
    """Let a user in no more, nor its keys.

    Example: hetuflow user disable ann
    """
    _one(
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
    """Let a disabled user in again.

    Example: hetuflow user enable ann
    """
    _one(
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
    """Delete a user and its keys; what it has done keeps its name.

    Example: hetuflow user delete ann --yes
    """
    invocation.sure(f"Delete the user {name} and its keys?", asks_scripts=True)
    on_server_or_database(
        invocation,
        config_path,
        lambda client: client.delete_user(name),
        lambda database, clock: Users(database, Passwords(), clock).delete(WHO, name),
    )
    invocation.tell_deleted("User", name)


@user_group.command("grant")
@click.argument("name")
@click.option("--role", type=click.Choice([role.value for role in Role]), required=True)
@click.option(
    "--also", multiple=True, type=_PERMISSIONS, metavar="PERMISSION", help="More than the role holds."
)
@click.option(
    "--without", multiple=True, type=_PERMISSIONS, metavar="PERMISSION", help="Less than the role holds."
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
    """Grant a role in the namespace of -n, or in all; it takes the place of what was granted there before.

    What is withheld with --without no other grant gives there.

    Example: hetuflow user grant ann --role operator -n team-a --without logs.read
    """
    namespace = invocation.given_namespace
    asked = GrantRequest(Role(role), namespace, list(also), list(without))
    _one(
        invocation,
        config_path,
        lambda client: client.grant(name, role, namespace=namespace, also=also, without=without),
        lambda users: users.grant(WHO, name, asked),
    )


@user_group.command("revoke")
@click.argument("name")
@config_option
@server_command
def revoke(invocation: Invocation, *, name: str, config_path: Path | None) -> None:
    """Take back what was granted in the namespace of -n, or in all.

    Example: hetuflow user revoke ann -n team-a
    """
    namespace = invocation.given_namespace
    _one(
        invocation,
        config_path,
        lambda client: client.revoke(name, namespace=namespace),
        lambda users: users.revoke(WHO, name, namespace),
    )


def _change_own_password(invocation: Invocation, *, stdin: bool, remove: bool) -> None:
    if remove:
        raise click.UsageError("Your own password can be changed, not taken away: name the user you mean.")
    current = read_password(stdin=stdin, confirm=False, what="Present password")
    password = read_password(stdin=stdin, confirm=True, what="New password")
    with invocation.client() as client:
        client.change_password(current, password)
    invocation.note("Your password is changed.")


def read_password(*, stdin: bool, confirm: bool, what: str = "Password") -> str:
    """Ask for a password without showing it, or read it from the next line of standard input."""
    if stdin:
        return sys.stdin.readline().rstrip("\r\n")
    if not sys.stdin.isatty():
        raise Invalid("A password is asked for on a terminal: give --password-stdin to read it from a file.")
    entered: str = click.prompt(what, hide_input=True, confirmation_prompt=confirm, err=True)
    return entered


def _one(
    invocation: Invocation,
    config_path: Path | None,
    on_server: Callable[[Hetuflow], User],
    on_database: Callable[[Users], Awaitable[User]],
) -> None:
    """Do something to one user and show it."""
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
        [one.namespace or "all", one.role.value, ", ".join(one.also), ", ".join(one.without), one.origin]
        for one in grants
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
        [one.name, one.display_name, _state(one), ", ".join(map(_brief, one.grants)), one.last_login_at]
        for one in users
    ]
    return Table(columns, rows)


def _brief(grant: UserGrant) -> str:
    return f"{grant.role.value} in {grant.namespace or 'all'}"


def _state(user: User) -> str:
    return "disabled" if user.disabled else "enabled"
