"""The commands `config check|show|write`, shared by all programs with settings."""

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
    """Create the `config` group of a program that reads `settings_type`.

    `host_note` returns a problem of the host that a valid configuration does not solve; `facts` returns lines
    about the effects of the configuration.
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
        """List all faults of the configuration."""
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
        """Print the effective values and their origins; secrets are masked."""
        loaded = load(settings_type, config_path=config_path)
        click.echo(effective_json(loaded) if output == "json" else effective_toml(loaded), nl=False)

    @group.command("write")
    @click.argument("path", type=click.Path(path_type=Path), default=Path("app.toml"))
    @click.option("--force", is_flag=True, help="Replace an existing file.")
    @with_example("write app.toml")
    def write(path: Path, force: bool) -> None:
        """Write a template with every key and its default to PATH (default: app.toml)."""
        write_private(path, template([settings_type]), force=force)
        click.echo(f"wrote {path}: set the required keys and run `config check`")

    return group


def write_private(path: Path, text: str, *, force: bool) -> None:
    """Write a file that only the owner can read, because users add secrets to it; atomic with `force`."""
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
        raise HostBlocked(f"{path} cannot be written ({error.strerror}): give a writable path.") from None
