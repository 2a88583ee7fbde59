"""`hetuflow login | logout`: credentials are stored in a profile that only the user can read."""

from __future__ import annotations

import os
from contextlib import suppress

import click

from hetuflow_core.client import Hetuflow
from hetuflow_core.client.endpoint import DEFAULT_URL, checked_url
from hetuflow_core.errors import Denied
from hetuflow_core.resources.identity import LoginAnswer
from hetuflow_server.cli.commands.user.user import password_stdin_option, read_password
from hetuflow_server.cli.connection import logged_in
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.lazy_loading import load
from hetuflow_server.cli.profiles import DEFAULT_PROFILE, Profile, Profiles


@click.command("login")
@click.option("-u", "--user", default=None, metavar="NAME", help="User name; prompted for if not given.")
@password_stdin_option
@click.option("--oidc", is_flag=True, help="Log in through the identity provider, in a browser.")
@click.option("--with-key", is_flag=True, help="Store the API key of --api-key instead of logging in.")
@server_command
def login(
    invocation: Invocation, *, user: str | None, password_stdin: bool, oidc: bool, with_key: bool
) -> None:
    """Log in and save the credentials in a profile, so that commands need no --url and --api-key.

    Example: hetuflow login --url https://hetuflow.example.com -u ann --profile work
    """
    name = invocation.profile or DEFAULT_PROFILE
    profiles = Profiles.of_user(os.environ)
    url = checked_url(invocation.given_url or _known_url(profiles, name) or DEFAULT_URL)
    now = invocation.clock.now()
    if with_key:
        profile = _with_key(invocation, url)
    elif oidc:
        answer: LoginAnswer = load("hetuflow_server.cli.oidc_login:log_in_through_browser")(
            url, invocation.note
        )
        profile = logged_in(url, answer, now)
    else:
        who = user or click.prompt("User", err=True)
        password = read_password(stdin=password_stdin, confirm=False)
        with Hetuflow(url) as client:
            profile = logged_in(url, client.login(who, password), now)
    profiles.put(name, profile, use=True)
    invocation.note(f"Logged in at {url} as {profile.user}; profile {name} is in use.")


@click.command("logout")
@server_command
def logout(invocation: Invocation) -> None:
    """Log out: end the login session of a profile and delete the profile.

    Example: hetuflow logout --profile work
    """
    profiles = Profiles.of_user(os.environ)
    name = invocation.profile or profiles.current or DEFAULT_PROFILE
    profile = profiles.get(name)
    if profile.api_key is None:
        # The session may have ended already.
        with suppress(Denied), Hetuflow(profile.url, profile.access_token) as client:
            client.logout()
    profiles.remove(name)
    invocation.note(f"Profile {name} is deleted.")


def _with_key(invocation: Invocation, url: str) -> Profile:
    key = invocation.connection.api_key or click.prompt("API key", hide_input=True, err=True)
    with Hetuflow(url, key) as client:
        me = client.who_am_i()
    return Profile(url, api_key=key, user=me.name)


def _known_url(profiles: Profiles, name: str) -> str | None:
    known = profiles.all().get(name)
    return known.url if known else None
