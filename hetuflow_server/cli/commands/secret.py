"""`hetuflow secret set | rotate | list | get | delete | rotate-key`."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Sequence
from typing import TypeVar

import click

from hetuflow_core.errors import Fault, Invalid
from hetuflow_core.resources.secrets import Secret
from hetuflow_core.secret_values import value_fault
from hetuflow_server.cli.invocation import Invocation, server_command
from hetuflow_server.cli.options.secret_sources import from_environment, from_file, from_stdin
from hetuflow_server.cli.options.shared import YES
from hetuflow_server.cli.output.layout import Column, Kind, Table
from hetuflow_server.cli.output.long_lists import all_namespaces_option, limit_option, page_size, take

F = TypeVar("F", bound=Callable[..., object])


@click.group("secret")
def secret_group() -> None:
    """Values that tasks get and nobody can read: passwords, tokens, keys."""


def _source_options(command: F) -> F:
    for option in (
        click.option("--from-env", metavar="NAME", help="Take the value from this variable."),
        click.option("--from-file", metavar="FILE", help="Take it from this file; - is standard input."),
    ):
        command = option(command)
    return command


@secret_group.command("set")
@click.argument("name")
@_source_options
@server_command
def set_secret(invocation: Invocation, name: str, from_env: str | None, from_file: str | None) -> None:
    """Give a secret a value; it is made if there is none.

    It is asked for on a terminal and read from standard input otherwise; it is never an argument, which every
    user of the host could see.

    Example: hetuflow secret set api-token --from-file token.txt
    """
    value = _value(from_env, from_file)
    with invocation.client() as client:
        _show(invocation, client.set_secret(invocation.namespace, name, value))


@secret_group.command("rotate")
@click.argument("name")
@_source_options
@server_command
def rotate_secret(invocation: Invocation, name: str, from_env: str | None, from_file: str | None) -> None:
    """Give a secret that is there a new value.

    Tasks that start from now on get it; what runs keeps what it was started with.

    Example: hetuflow secret rotate api-token --from-env NEW_TOKEN
    """
    value = _value(from_env, from_file)
    with invocation.client() as client:
        _show(invocation, client.rotate_secret(invocation.namespace, name, value))


@secret_group.command("list")
@limit_option
@all_namespaces_option
@server_command
def list_secrets(invocation: Invocation, all_namespaces: bool, limit: int) -> None:
    """List the secrets of a namespace, without their values.

    Example: hetuflow secret list -n team-a
    """
    namespace = None if all_namespaces else invocation.namespace
    with invocation.client() as client:
        found = take(invocation, client.secrets(namespace=namespace, page_size=page_size(limit)), limit)
    invocation.show(found, human=lambda: [_table(found)], brief=[one.name for one in found])


@secret_group.command("get")
@click.argument("name")
@server_command
def get_secret(invocation: Invocation, name: str) -> None:
    """Show what is known of a secret and which jobs use it; its value cannot be read.

    Example: hetuflow secret get api-token -o json
    """
    with invocation.client() as client:
        _show(invocation, client.secret(invocation.namespace, name))


@secret_group.command("delete")
@click.argument("name")
@YES
@server_command
def delete_secret(invocation: Invocation, name: str) -> None:
    """Delete a secret that no job uses, with all its values.

    Example: hetuflow secret delete api-token
    """
    invocation.sure(f"Delete the secret {invocation.namespace}/{name}?")
    with invocation.client() as client:
        client.delete_secret(invocation.namespace, name)
    invocation.tell_deleted("Secret", f"{invocation.namespace}/{name}")


@secret_group.command("rotate-key")
@server_command
def rotate_key(invocation: Invocation) -> None:
    """Encrypt all secrets with the servers' newest key, while everything runs.

    Put the new key into server.secret_keyring of every server first, then make it server.secret_key.

    Example: hetuflow secret rotate-key
    """
    done = 0
    with invocation.client() as client:
        while True:
            step = client.rotate_key()
            done += step.rewrapped
            if not step.rewrapped:
                break
    if step.remaining:
        raise Invalid(f"{step.remaining} values are being changed by others: run it again.")
    invocation.show({"rewrapped": done}, human=lambda: [f"{done} values are under the newest key now."])


def _value(variable: str | None, file: str | None) -> str:
    if variable is not None and file is not None:
        raise Invalid("--from-env and --from-file exclude each other: keep one of them.")
    if variable is not None:
        value = from_environment(variable, os.environ)
    elif file is not None and file != "-":
        value = from_file(file)
    elif file is None and sys.stdin.isatty():
        value = click.prompt("Value", hide_input=True, err=True)
    else:
        value = from_stdin()
    fault = value_fault(value)
    if fault is not None:
        raise Invalid("The value cannot be a secret.", faults=[Fault("value", fault)])
    return value


def _show(invocation: Invocation, secret: Secret) -> None:
    def human() -> list[Table | str]:
        users = [f"Used by {', '.join(secret.used_by)}."] if secret.used_by else []
        return [_table([secret]), *users]

    invocation.show(secret, human=human, brief=[secret.name])


def _table(secrets: Sequence[Secret]) -> Table:
    columns = [
        Column("NAMESPACE", Kind.PLACE),
        Column("NAME"),
        Column("VERSION", Kind.NUMBER),
        Column("UPDATED", Kind.TIME),
        Column("BY"),
    ]
    return Table(
        columns,
        [[one.namespace, one.name, one.version, one.updated_at, one.updated_by] for one in secrets],
    )
