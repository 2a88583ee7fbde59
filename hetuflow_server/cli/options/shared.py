"""Common options. Each is declared on the verb and is also accepted before the verb."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final, Literal, TypeVar

import click
from click.core import ParameterSource

from hetuflow_core.environment_variables import (
    KEY_VARIABLE,
    NAMESPACE_VARIABLE,
    PROFILE_VARIABLE,
    URL_VARIABLE,
)

F = TypeVar("F", bound=Callable[..., Any])

OutputFormat = Literal["table", "json", "jsonl", "yaml"]
DEFAULT_NAMESPACE: Final = "default"

# Key of the click context for options given before the verb.
_EARLY: Final = f"{__name__}.early"


@dataclass(frozen=True, slots=True)
class CommonOption:
    name: str
    flags: tuple[str, ...]
    help: str
    envvar: str | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def __call__(self, command: F) -> F:
        """Declare the option on a verb."""
        declare = click.option(
            *self.flags,
            self.name,
            envvar=self.envvar,
            show_envvar=self.envvar is not None,
            help=self.help,
            **self.more,
        )
        return declare(command)

    def early(self, *, hidden: bool) -> click.Option:
        """Return the option for use before the verb; its value is passed to the verb."""
        more = {**self.more, "default": None}
        return click.Option(
            [*self.flags, self.name],
            expose_value=False,
            callback=_remember,
            hidden=hidden,
            help=self.help,
            **more,
        )


URL: Final = CommonOption("url", ("--url",), "Address of the server.", URL_VARIABLE, {"metavar": "URL"})
API_KEY: Final = CommonOption("api_key", ("--api-key",), "API key.", KEY_VARIABLE, {"metavar": "KEY"})
PROFILE: Final = CommonOption(
    "profile",
    ("--profile",),
    "Use the login saved under this name by `hetuflow login`.",
    PROFILE_VARIABLE,
    {"metavar": "NAME"},
)
NAMESPACE: Final = CommonOption(
    "namespace",
    ("-n", "--namespace"),
    f'Namespace; "{DEFAULT_NAMESPACE}" if not given.',
    NAMESPACE_VARIABLE,
    {"metavar": "NAME"},
)
OUTPUT: Final = CommonOption(
    "output",
    ("-o", "--output"),
    "Output format: table, json, yaml or jsonl (one line per item).",
    more={"type": click.Choice(["table", "json", "jsonl", "yaml"]), "default": "table", "metavar": "FORMAT"},
)
QUIET: Final = CommonOption("quiet", ("-q", "--quiet"), "Print only ids or names.", more={"is_flag": True})
YES: Final = CommonOption("yes", ("-y", "--yes"), "Do not ask for confirmation.", more={"is_flag": True})

COMMON: Final = (NAMESPACE, OUTPUT, QUIET, YES, URL, API_KEY, PROFILE)


def global_options() -> list[click.Option]:
    """Return the options of all commands; their callbacks handle them completely."""
    return [
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            metavar="WHEN",
            expose_value=False,
            is_eager=True,
            callback=_choose_colour,
            help="Colour output: auto (on a terminal; respects NO_COLOR and FORCE_COLOR), always or never.",
        ),
        click.Option(["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error."),
    ]


def early_values(ctx: click.Context) -> dict[str, Any]:
    """Return the options given before the verb."""
    early: dict[str, Any] = ctx.meta.get(_EARLY, {})
    return early


def apply_early_options(ctx: click.Context) -> None:
    """Pass options given before the verb to the verb, unless they are repeated after it."""
    for name, value in early_values(ctx).items():
        parameter = next((candidate for candidate in ctx.command.params if candidate.name == name), None)
        if parameter is None:
            flag = next(candidate.flags[-1] for candidate in COMMON if candidate.name == name)
            raise click.UsageError(f"`{ctx.command_path}` does not accept {flag}: leave it out.", ctx)
        if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            ctx.params[name] = parameter.type_cast_value(ctx, value)


def _remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    name = parameter.name or ""
    if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        ctx.meta.setdefault(_EARLY, {})[name] = value


def _choose_colour(_ctx: click.Context, _parameter: click.Parameter, mode: str | None) -> None:
    """Set the environment variables that all coloured output checks."""
    if mode is None or mode == "auto":
        return
    chosen, other = ("FORCE_COLOR", "NO_COLOR") if mode == "always" else ("NO_COLOR", "FORCE_COLOR")
    os.environ[chosen] = "1"
    os.environ.pop(other, None)
