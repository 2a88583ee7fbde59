"""What all commands that call a server share: options, client and output."""

from __future__ import annotations

import functools
import os
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

import click

from hetuflow_core.client import Hetuflow
from hetuflow_core.errors import HetuflowError, Invalid
from hetuflow_core.resources.identity import LoginAnswer
from hetuflow_core.runtime.clock import Clock, SystemClock
from hetuflow_core.runtime.terminal import coloured, is_terminal
from hetuflow_server.cli.connection import ServerConnection, find_connection, refreshed
from hetuflow_server.cli.lazy_loading import load
from hetuflow_server.cli.options.shared import (
    API_KEY,
    DEFAULT_NAMESPACE,
    NAMESPACE,
    OUTPUT,
    PROFILE,
    QUIET,
    URL,
    OutputFormat,
)
from hetuflow_server.cli.output.layout import Block, plain
from hetuflow_server.cli.output.structured import as_json, as_lines
from hetuflow_server.cli.profiles import Profile, Profiles

P = ParamSpec("P")
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Invocation:
    # Called only when a connection is needed; profile commands need none.
    find_connection: Callable[[], ServerConnection]
    # None when it was not given.
    given_namespace: str | None
    output: OutputFormat
    quiet: bool
    clock: Clock
    # As given, without the values of a profile or a development system.
    given_url: str | None = None
    profile: str | None = None
    # `confirm` does not ask.
    yes: bool = False

    @property
    def connection(self) -> ServerConnection:
        return self.find_connection()

    @property
    def namespace(self) -> str:
        return self.given_namespace or DEFAULT_NAMESPACE

    def client(self) -> Hetuflow:
        connection = self.connection
        return Hetuflow(connection.url, connection.api_key)

    def show(self, value: Any, *, human: Callable[[], Sequence[Block]], brief: Sequence[object] = ()) -> None:
        """Print a result: `value` as JSON or YAML, `human` as text, or `brief` with -q."""
        if self.output == "json":
            click.echo(as_json(value))
        elif self.output == "jsonl":
            click.echo("".join(f"{line}\n" for line in as_lines(value)), nl=False)
        elif self.output == "yaml":
            click.echo(load("hetuflow_server.cli.output.as_yaml:as_yaml")(value))
        elif self.quiet:
            click.echo("".join(f"{line}\n" for line in brief), nl=False)
        elif is_terminal(sys.stdout) or coloured(sys.stdout):
            load("hetuflow_server.cli.output.rich_output:show")(
                human(), now=self.clock.now(), file=sys.stdout
            )
        else:
            click.echo(plain(human()))

    def note(self, sentence: str) -> None:
        """Print a message to standard error, so that scripts that read the output do not see it."""
        if not self.quiet:
            click.echo(sentence, err=True)

    def show_deleted(self, kind: str, name: str) -> None:
        """Report the deletion of an object."""
        self.show({"deleted": name}, human=lambda: [f"{kind} {name} is deleted."], brief=[name])

    def confirm(self, question: str, *, asks_scripts: bool = False) -> None:
        """Ask for confirmation on a terminal.

        Scripts are not asked. With `asks_scripts`, for effects that the command line does not show, they
        must give --yes.
        """
        if self.yes:
            return
        if is_terminal(sys.stdin) and is_terminal(sys.stderr):
            if not click.confirm(question, err=True):
                raise HetuflowError("Nothing was changed.")
        elif asks_scripts:
            raise Invalid(f"{question} There is no terminal to ask: give --yes.")


def server_command(command: Callable[Concatenate[Invocation, P], R]) -> Callable[..., R]:
    """Add the common options to a command; it receives them as an `Invocation`."""
    return NAMESPACE(server_command_of_any_namespace(command))


def server_command_of_any_namespace(command: Callable[Concatenate[Invocation, P], R]) -> Callable[..., R]:
    """Add the common options except -n to a command."""

    @OUTPUT
    @QUIET
    @URL
    @API_KEY
    @PROFILE
    @functools.wraps(command)
    def with_options(
        url: str | None,
        api_key: str | None,
        profile: str | None,
        output: OutputFormat,
        quiet: bool,
        namespace: str | None = None,
        yes: bool = False,
        **arguments: Any,
    ) -> R:
        clock = SystemClock()
        find = functools.partial(connect, url, api_key, profile, clock)
        invocation = Invocation(find, namespace, output, quiet, clock, url, profile, yes)
        return command(invocation, **arguments)  # type: ignore[call-arg]  # click passes by name

    return with_options


def connect(url: str | None, api_key: str | None, profile: str | None, clock: Clock) -> ServerConnection:
    """Find the connection from the options, the user's profiles and the current folder."""

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
