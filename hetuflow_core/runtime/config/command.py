"""The commands `config check|show|write`, the same for every program with settings."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

import click

from hetuflow_core.errors import Conflict, HostBlocked
from hetuflow_core.runtime.config.keys import Settings
from hetuflow_core.runtime.config.loading import load
from hetuflow_core.runtime.config.render import effective_json, effective_toml, template, validity

F = TypeVar("F", bound=Callable[..., Any])

config_option = click.option(
    "--config",
    "config_path",
    type=click.Path(path_type=Path),
    metavar="FILE",
    help="Configuration file; otherwise $HETUFLOW_CONFIG, ./app.toml or /etc/hetuflow/app.toml.",
)


def config_commands(
    settings_type: type[Settings],
    *,
    program: str = "hetuflow",
    host_note: Callable[[], str | None] = lambda: None,
    facts: Callable[[], Sequence[str]] = tuple,
) -> click.Group:
    """The `config` group for the program that reads `settings_type`.

    `host_note` says what of this host would be in its way although the configuration is right, `facts` what
    follows from it.
    """

    @click.group("config")
    def group() -> None:
        """Check, show and write the configuration."""

    def with_example(arguments: str) -> Callable[[F], F]:
        def add(function: F) -> F:
            function.__doc__ = f"{function.__doc__}\n\nExample: {program} config {arguments}\n"
            return function

        return add

    @group.command("check")
    @config_option
    @with_example("check --config /etc/hetuflow/app.toml")
    def check(config_path: Path | None) -> None:
        """List everything that is wrong with the configuration."""
        click.echo(validity(load(settings_type, config_path=config_path)), nl=False)
        for fact in facts():
            click.echo(fact)
        if (note := host_note()) is not None:
            click.echo(note, err=True)

    @group.command("show")
    @config_option
    @click.option("-o", "--output", type=click.Choice(["toml", "json"]), default="toml", show_default=True)
    @with_example("show -o json")
    def show(config_path: Path | None, output: Literal["toml", "json"]) -> None:
        """Print the values in effect and where each comes from; secrets are masked."""
        loaded = load(settings_type, config_path=config_path)
        click.echo(effective_json(loaded) if output == "json" else effective_toml(loaded), nl=False)

    @group.command("write")
    @click.argument("path", type=click.Path(path_type=Path), default=Path("app.toml"))
    @click.option("--force", is_flag=True, help="Replace the file if there is one.")
    @with_example("write app.toml")
    def write(path: Path, force: bool) -> None:
        """Write a file with every key and its default, to start from; PATH is app.toml if not given."""
        write_private(path, template([settings_type]), force=force)
        click.echo(f"{path} is written: set what is marked as required and run `config check`")

    return group


def write_private(path: Path, text: str, *, force: bool) -> None:
    """Write `text` for the owner's eyes only, since secrets will be added to it; whole or not at all."""
    target = path.parent / f".{path.name}.{os.getpid()}" if force else path
    try:
        descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
        try:
            with os.fdopen(descriptor, "w", encoding="utf-8") as stream:
                stream.write(text)
            if force:
                target.replace(path)
        except OSError:
            target.unlink(missing_ok=True)
            raise
    except FileExistsError:
        raise Conflict(f"{path} exists already: give another path, or --force to replace it.") from None
    except OSError as error:
        raise HostBlocked(f"{path} cannot be written ({error.strerror}): give a path that can be.") from None
