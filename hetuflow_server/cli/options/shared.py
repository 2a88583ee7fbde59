"""The options that commands share: each may stand after the verb, where it is declared, or before it."""

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

# Where an invocation keeps what was given before the verb.
_EARLY: Final = f"{__name__}.early"


@dataclass(frozen=True, slots=True)
class CommonOption:
    name: str
    flags: tuple[str, ...]
    help: str
    envvar: str | None = None
    more: dict[str, Any] = field(default_factory=dict)

    def __call__(self, command: F) -> F:
        """Declare it on a verb."""
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
        """The same before the verb: whatever verb follows is handed what was given."""
        more = {**self.more, "default": None}
        return click.Option(
            [*self.flags, self.name],
            expose_value=False,
            callback=_remember,
            hidden=hidden,
            help=self.help,
            **more,
        )


URL: Final = CommonOption("url", ("--url",), "The server's address.", URL_VARIABLE, {"metavar": "URL"})
API_KEY: Final = CommonOption(
    "api_key", ("--api-key",), "The key to get in.", KEY_VARIABLE, {"metavar": "KEY"}
)
PROFILE: Final = CommonOption(
    "profile",
    ("--profile",),
    "What `hetuflow login` has remembered under this name.",
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
    "table for people; json, yaml, or jsonl (a line for each item) for programs.",
    more={"type": click.Choice(["table", "json", "jsonl", "yaml"]), "default": "table", "metavar": "FORMAT"},
)
QUIET: Final = CommonOption("quiet", ("-q", "--quiet"), "Print ids or names only.", more={"is_flag": True})
YES: Final = CommonOption("yes", ("-y", "--yes"), "Do not ask.", more={"is_flag": True})

COMMON: Final = (NAMESPACE, OUTPUT, QUIET, YES, URL, API_KEY, PROFILE)


def everywhere() -> list[click.Option]:
    """The options of every command whatsoever, which are done with once they are read."""
    return [
        click.Option(
            ["--color"],
            type=click.Choice(["auto", "always", "never"]),
            metavar="WHEN",
            expose_value=False,
            is_eager=True,
            callback=_choose_colour,
            help="auto (on a terminal; NO_COLOR and FORCE_COLOR are obeyed), always or never.",
        ),
        click.Option(["--debug"], is_flag=True, expose_value=False, help="Show the traceback of an error."),
    ]


def early_values(ctx: click.Context) -> dict[str, Any]:
    """What stood before the verb."""
    early: dict[str, Any] = ctx.meta.get(_EARLY, {})
    return early


def hand_on(ctx: click.Context) -> None:
    """Give a verb what stood before it, unless the same stands after it."""
    for name, value in early_values(ctx).items():
        wanted = next((one for one in ctx.command.params if one.name == name), None)
        if wanted is None:
            flag = next(one.flags[-1] for one in COMMON if one.name == name)
            raise click.UsageError(f"`{ctx.command_path}` takes no {flag}: leave it out.", ctx)
        if ctx.get_parameter_source(name) is not ParameterSource.COMMANDLINE:
            ctx.params[name] = wanted.type_cast_value(ctx, value)


def _remember(ctx: click.Context, parameter: click.Parameter, value: Any) -> None:
    name = parameter.name or ""
    if ctx.get_parameter_source(name) is ParameterSource.COMMANDLINE:
        ctx.meta.setdefault(_EARLY, {})[name] = value


def _choose_colour(_ctx: click.Context, _parameter: click.Parameter, wanted: str | None) -> None:
    """Into the environment, which is where everything that may be coloured looks."""
    if wanted is None or wanted == "auto":
        return
    chosen, other = ("FORCE_COLOR", "NO_COLOR") if wanted == "always" else ("NO_COLOR", "FORCE_COLOR")
    os.environ[chosen] = "1"
    os.environ.pop(other, None)
