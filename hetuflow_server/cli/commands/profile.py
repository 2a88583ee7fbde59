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
    # "key" or "login".
    by: str
    in_use: bool


@click.group("profile")
def profile_group() -> None:
    """List, select and delete saved logins."""


@profile_group.command("list")
@server_command
def list_profiles(invocation: Invocation) -> None:
    """List profiles, without keys and tokens.

    Example: hetuflow profile list
    """
    profiles = Profiles.of_user(os.environ)
    current = profiles.current
    shown = [_shown(name, profile, current) for name, profile in sorted(profiles.all().items())]
    columns = [Column("NAME"), Column("URL"), Column("USER"), Column("BY"), Column("IN USE")]
    rows = [
        [profile.name, profile.url, profile.user, profile.by, "yes" if profile.in_use else None]
        for profile in shown
    ]
    invocation.show(shown, human=lambda: [Table(columns, rows)], brief=[profile.name for profile in shown])


@profile_group.command("use")
@click.argument("name")
@server_command
def use_profile(invocation: Invocation, name: str) -> None:
    """Select the profile that commands use.

    Example: hetuflow profile use work
    """
    Profiles.of_user(os.environ).use(name)
    invocation.note(f"Profile {name} is in use.")


@profile_group.command("show")
@click.argument("name", required=False)
@server_command
def show_profile(invocation: Invocation, name: str | None) -> None:
    """Show a profile; the profile in use if NAME is not given.

    Example: hetuflow profile show
    """
    profiles = Profiles.of_user(os.environ)
    selected = name or profiles.current
    if selected is None:
        raise NotFound("No profile is in use: create one with `hetuflow login`.", code="profile.not_found")
    shown = _shown(selected, profiles.get(selected), profiles.current)
    sheet = Sheet([("name", shown.name), ("url", shown.url), ("user", shown.user), ("by", shown.by)])
    invocation.show(shown, human=lambda: [sheet], brief=[shown.name])


@profile_group.command("delete")
@click.argument("name")
@server_command
def delete_profile(invocation: Invocation, name: str) -> None:
    """Delete a profile without logging out.

    Example: hetuflow profile delete work
    """
    Profiles.of_user(os.environ).remove(name)
    invocation.note(f"Profile {name} is deleted.")


def _shown(name: str, profile: Profile, current: str | None) -> ShownProfile:
    by = "key" if profile.api_key else "login"
    return ShownProfile(name, profile.url, profile.user, by, in_use=name == current)
