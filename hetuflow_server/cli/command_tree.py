"""Behaviour of all commands: `hetuflow NOUN VERB`, with common options before and after.

Commands are plain click commands; `with_common_behaviour` converts them to nouns and verbs on loading.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from hetuflow_server.cli.lazy_loading import load
from hetuflow_server.cli.options.shared import COMMON, apply_early_options, global_options

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

C = TypeVar("C", bound=click.Command)

# The line of a command's help that shows how to call it.
EXAMPLE: Final = re.compile(r"^Example: (.+)$", re.MULTILINE)

_WATCH: Final = "watch_seconds"
_WATCH_SECONDS: Final = 2.0
_WATCHABLE: Final = frozenset({"list", "status", "graph"})

# (noun, parameter) → kind of object that it names; "" is any noun.
_COMPLETED: Final[Mapping[tuple[str, str], str]] = {
    ("", "namespace"): "namespace",
    ("", "profile"): "profile",
    ("", "job"): "job",
    ("", "agent"): "agent",
    ("", "task_id"): "task",
    ("", "run_id"): "run",
    ("instance", "which"): "job",
    ("agent", "name"): "agent",
    ("backfill", "which"): "schedule",
    ("calendar", "name"): "calendar",
    ("flow", "which"): "job",
    ("job", "name"): "job",
    ("limit", "name"): "limit",
    ("namespace", "name"): "namespace",
    ("profile", "name"): "profile",
    ("schedule", "which"): "schedule",
    ("secret", "name"): "secret",
    ("task", "which"): "job",
    ("user", "name"): "user",
    ("webhook", "name"): "webhook",
}


class _WithExample(click.Command):
    def format_help_text(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Print the example on one line, so that it can be copied."""
        plain_help = self.help
        try:
            self.help = EXAMPLE.sub(
                lambda match: f"\b\nExample:\n  {match[1]}", inspect.cleandoc(plain_help or "")
            )
            super().format_help_text(ctx, formatter)
        finally:
            self.help = plain_help


class Verb(_WithExample):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            apply_early_options(ctx)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        seconds = ctx.params.pop(_WATCH, None)
        if seconds is None:
            return super().invoke(ctx)
        return load("hetuflow_server.cli.output.watch:watched")(
            lambda: super(Verb, self).invoke(ctx), seconds
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the options of this command first, then the common options."""
        shared = {
            option.name
            for option in [*COMMON, *global_options(), self.get_help_option(ctx)]
            if option is not None
        }
        for title, common in (("Options", False), ("Common options", True)):
            options = [option for option in self.get_params(ctx) if isinstance(option, click.Option)]
            mine = [option for option in options if (option.name in shared) is common]
            records = [record for option in mine if (record := option.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Noun(_WithExample, click.Group):
    """A group of verbs. Its common options are hidden: each verb lists the options that it accepts."""


def with_common_behaviour(command: click.Command, noun_name: str = "") -> click.Command:
    """Return the command as a noun or a verb, with the global options."""
    if not isinstance(command, click.Group):
        verb = _copied(command, Verb)
        verb.params = [*command.params, *_watch_options(verb), *global_options()]
        for parameter in verb.params:
            parameter.type = _completed(noun_name, parameter)
        return verb
    noun = _copied(command, Noun)
    own_name = command.name or noun_name
    noun.commands = {name: with_common_behaviour(child, own_name) for name, child in command.commands.items()}
    noun.params = [*command.params, *early_options(hidden=True)]
    return noun


def _watch_options(verb: click.Command) -> list[click.Option]:
    """Return the --watch option of commands that only read from the server."""
    calls_server = any(parameter.name == "output" for parameter in verb.params)
    if verb.name not in _WATCHABLE or not calls_server:
        return []
    return [
        click.Option(
            ["-w", "--watch", _WATCH],
            is_flag=False,
            flag_value=_WATCH_SECONDS,
            type=click.FloatRange(min=0.2),
            metavar="[SECONDS]",
            help=f"Repeat every SECONDS until Ctrl-C; every {_WATCH_SECONDS:g} seconds if not given.",
        )
    ]


def early_options(*, hidden: bool) -> list[click.Option]:
    options = [*(option.early(hidden=hidden) for option in COMMON), *global_options()]
    for option in options:
        option.hidden = hidden
        option.type = _completed("", option)
    return options


def all_commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Yield every command below `group` with its path; a noun comes before its verbs."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from all_commands(command, (*path, name))


class _Reference(click.ParamType[Any]):
    """Name or id of an object on the server; the server completes it."""

    def __init__(self, kind: str, given_as: click.ParamType[Any]) -> None:
        self.kind = kind
        self.name = given_as.name
        self._given_as = given_as

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._given_as.convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return _completion_items(ctx, self.kind, incomplete)


def _completed(noun: str, parameter: click.Parameter) -> click.ParamType[Any]:
    """Return the parameter's type, with completion if the parameter names an object or a file."""
    name = parameter.name or ""
    kind = _COMPLETED.get((noun, name)) or _COMPLETED.get(("", name))
    if parameter.metavar == "FILE" and parameter.type is click.STRING:
        return click.Path()
    if kind is not None and parameter.type in {click.STRING, click.UUID}:
        return _Reference(kind, parameter.type)
    return parameter.type


def _completion_items(ctx: click.Context, kind: str, incomplete: str) -> list[CompletionItem]:
    load_items = load("hetuflow_server.cli.completion_items:completion_items")
    items: list[CompletionItem] = load_items(ctx, kind, incomplete)
    return items


def _copied(command: click.Command, kind: type[C]) -> C:
    copy = kind.__new__(kind)
    copy.__dict__.update(command.__dict__)
    return copy
