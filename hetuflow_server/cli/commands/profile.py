"""`hetuflow profile list | use | show | delete`."""

from __future__ import annotations

import os

import click
import msgspec

from hetuflow_core.errors import NotFound
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.output.layout import Column, Sheet, Table
from hetuflow_server.cli.profiles import Profile, Profiles


class ShownProfile(msgspec.Struct, frozen=True):
    name: str
    url: str
    user: str | None
    # key or login.
    by: str
    in_use: bool


@click.group("profile")
def profile_group() -> None:
    """Servers you have logged in to, and which of them commands talk to."""


@profile_group.command("list")
@server_command
def list_profiles(invocation: Invocation) -> None:
    """List profiles; no key or token is shown.

    Example: hetuflow profile list
    """
    profiles = Profiles.of_user(os.environ)
    current = profiles.current
    shown = [_shown(name, one, current) for name, one in sorted(profiles.all().items())]
    columns = [Column("NAME"), Column("URL"), Column("USER"), Column("BY"), Column("IN USE")]
    rows = [[one.name, one.url, one.user, one.by, "yes" if one.in_use else None] for one in shown]
    invocation.show(shown, human=lambda: [Table(columns, rows)], brief=[one.name for one in shown])


@profile_group.command("use")
@click.argument("name")
@server_command
def use_profile(invocation: Invocation, name: str) -> None:
    """Let commands talk to the server of a profile.

    Example: hetuflow profile use work
    """
    Profiles.of_user(os.environ).use(name)
    invocation.note(f"The profile {name} is in use.")


@profile_group.command("show")
@click.argument("name", required=False)
@server_command
def show_profile(invocation: Invocation, name: str | None) -> None:
    """Show a profile, or the one in use; `hetuflow whoami` asks its server.

    Example: hetuflow profile show
    """
    profiles = Profiles.of_user(os.environ)
    wanted = name or profiles.current
    if wanted is None:
        raise NotFound("No profile is in use: `hetuflow login` makes one.", code="profile.not_found")
    shown = _shown(wanted, profiles.get(wanted), profiles.current)
    sheet = Sheet([("name", shown.name), ("url", shown.url), ("user", shown.user), ("by", shown.by)])
    invocation.show(shown, human=lambda: [sheet], brief=[shown.name])


@profile_group.command("delete")
@click.argument("name")
@server_command
def delete_profile(invocation: Invocation, name: str) -> None:
    """Forget a profile without logging out.

    Example: hetuflow profile delete work
    """
    Profiles.of_user(os.environ).remove(name)
    invocation.note(f"The profile {name} is forgotten.")


def _shown(name: str, profile: Profile, current: str | None) -> ShownProfile:
    by = "key" if profile.api_key else "login"
    return ShownProfile(name, profile.url, profile.user, by, in_use=name == current)
