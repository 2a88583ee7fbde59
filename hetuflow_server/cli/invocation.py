"""What every command that talks to a server has in common: its options, its client, its output."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, Literal, ParamSpec, TypeVar

import click

from hetuflow_core.client import Hetuflow
from hetuflow_core.client.endpoint import KEY_VARIABLE, URL_VARIABLE
from hetuflow_core.identities import LoginAnswer
from hetuflow_core.runtime.clock import Clock, SystemClock
from hetuflow_server.cli.connection import Connection, find_connection, refreshed
from hetuflow_server.cli.layout import Block, plain
from hetuflow_server.cli.loading import load
from hetuflow_server.cli.profiles import PROFILE_VARIABLE, Profile, Profiles
from hetuflow_server.cli.structured import as_json

P = ParamSpec("P")
R = TypeVar("R")

OutputFormat = Literal["table", "json", "yaml"]
DEFAULT_NAMESPACE = "default"


@dataclass(frozen=True, slots=True)
class Invocation:
    # Looked for when it is needed: commands about profiles need none.
    find_connection: Callable[[], Connection]
    # None when it was not given.
    given_namespace: str | None
    output: OutputFormat
    quiet: bool
    clock: Clock
    # As they were given, before a profile or a development system was looked for.
    given_url: str | None = None
    profile: str | None = None

    @property
    def connection(self) -> Connection:
        return self.find_connection()

    @property
    def namespace(self) -> str:
        return self.given_namespace or DEFAULT_NAMESPACE

    def client(self) -> Hetuflow:
        connection = self.connection
        return Hetuflow(connection.url, connection.api_key)

    def show(self, value: Any, *, human: Callable[[], Sequence[Block]], brief: Sequence[object] = ()) -> None:
        """Print a result as was asked for: `value` for programs, `human` for people, `brief` with -q."""
        if self.output == "json":
            click.echo(as_json(value))
        elif self.output == "yaml":
            click.echo(load("hetuflow_server.cli.as_yaml:as_yaml")(value))
        elif self.quiet:
            click.echo("".join(f"{line}\n" for line in brief), nl=False)
        elif sys.stdout.isatty():
            load("hetuflow_server.cli.on_terminal:show")(human(), now=self.clock.now(), file=sys.stdout)
        else:
            click.echo(plain(human()))

    def note(self, sentence: str) -> None:
        """Say something beside the result; scripts that read the output do not see it."""
        if not self.quiet:
            click.echo(sentence, err=True)


def server_command(command: Callable[Concatenate[Invocation, P], R]) -> Callable[..., R]:
    """Give a command the common options; it receives them as an `Invocation`."""
    namespace = click.option(
        "-n",
        "--namespace",
        envvar="HETUFLOW_NAMESPACE",
        show_envvar=True,
        metavar="NAME",
        help=f'Namespace; "{DEFAULT_NAMESPACE}" if not given.',
    )
    return namespace(server_command_of_any_namespace(command))


def server_command_of_any_namespace(command: Callable[Concatenate[Invocation, P], R]) -> Callable[..., R]:
    """Give a command the common options but -n, which it may use for something else."""

    @click.option("--url", envvar=URL_VARIABLE, show_envvar=True, metavar="URL", help="The server's address.")
    @click.option(
        "--api-key", envvar=KEY_VARIABLE, show_envvar=True, metavar="KEY", help="The key to get in."
    )
    @click.option(
        "--profile",
        envvar=PROFILE_VARIABLE,
        show_envvar=True,
        metavar="NAME",
        help="What `hetuflow login` has remembered under this name.",
    )
    @click.option(
        "-o",
        "--output",
        type=click.Choice(["table", "json", "yaml"]),
        default="table",
        help="How to print the result.",
    )
    @click.option("-q", "--quiet", is_flag=True, help="Print ids or names only.")
    @functools.wraps(command)
    def with_options(
        url: str | None,
        api_key: str | None,
        profile: str | None,
        output: OutputFormat,
        quiet: bool,
        namespace: str | None = None,
        **arguments: Any,
    ) -> R:
        clock = SystemClock()
        find = functools.partial(_find, url, api_key, profile, clock)
        invocation = Invocation(find, namespace, output, quiet, clock, url, profile)
        return command(invocation, **arguments)  # type: ignore[call-arg]  # click passes by name

    return with_options


def _find(url: str | None, api_key: str | None, profile: str | None, clock: Clock) -> Connection:
    def fresh(profiles: Profiles, name: str) -> Profile:
        return refreshed(profiles, name, now=clock.now(), refresh=_refresh)

    return find_connection(
        url,
        api_key,
        folder=Path(),
        profiles=Profiles.of_user(os.environ),
        profile=profile,
        fresh=fresh,
    )


def _refresh(url: str, refresh_token: str) -> LoginAnswer:
    with Hetuflow(url) as client:
        return client.refresh(refresh_token)
