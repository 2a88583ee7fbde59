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
    """Set, list, rotate and delete secrets: values that only tasks can read."""


def _source_options(command: F) -> F:
    for option in (
        click.option("--from-env", metavar="NAME", help="Read the value from this environment variable."),
        click.option(
            "--from-file", metavar="FILE", help="Read the value from this file; - reads standard input."
        ),
    ):
        command = option(command)
    return command


@secret_group.command("set")
@click.argument("name")
@_source_options
@server_command
def set_secret(invocation: Invocation, name: str, from_env: str | None, from_file: str | None) -> None:
    """Create a secret or set its value.

    Without an option, the value is prompted for on a terminal and read from standard input otherwise. It
    cannot be an argument, because other users of the host can see arguments.

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
    """Set a new value of an existing secret.

    Instances that start from now on get the new value. Running instances keep the old one.

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
        secrets = take(invocation, client.secrets(namespace=namespace, page_size=page_size(limit)), limit)
    invocation.show(secrets, human=lambda: [_table(secrets)], brief=[secret.name for secret in secrets])


@secret_group.command("get")
@click.argument("name")
@server_command
def get_secret(invocation: Invocation, name: str) -> None:
    """Show a secret and the jobs that use it, without its value.

    Example: hetuflow secret get api-token -o json
    """
    with invocation.client() as client:
        _show(invocation, client.secret(invocation.namespace, name))


@secret_group.command("delete")
@click.argument("name")
@YES
@server_command
def delete_secret(invocation: Invocation, name: str) -> None:
    """Delete a secret and its value; refused while a job uses it.

    Example: hetuflow secret delete api-token
    """
    invocation.confirm(f"Delete the secret {invocation.namespace}/{name}?")
    with invocation.client() as client:
        client.delete_secret(invocation.namespace, name)
    invocation.show_deleted("Secret", f"{invocation.namespace}/{name}")


@secret_group.command("rotate-key")
@server_command
def rotate_key(invocation: Invocation) -> None:
    """Encrypt all secrets with the new key of the servers.

    First add the new key to server.secret_keyring of every server, then make it server.secret_key.

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
        raise Invalid(f"{step.remaining} values were changed concurrently: run the command again.")
    invocation.show({"rewrapped": done}, human=lambda: [f"{done} values are now encrypted with the new key."])


def _value(variable: str | None, file: str | None) -> str:
    if variable is not None and file is not None:
        raise Invalid("Give --from-env or --from-file, not both.")
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
        raise Invalid("The value of the secret is not valid.", faults=[Fault("value", fault)])
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
        [
            [secret.namespace, secret.name, secret.version, secret.updated_at, secret.updated_by]
            for secret in secrets
        ],
    )
