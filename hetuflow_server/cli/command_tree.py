"""What holds for every command, whoever wrote it: `hetuflow NOUN VERB`, with common options before and after.

Commands are declared with click as usual; `spoken` makes nouns and verbs of them when they are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from hetuflow_server.cli.lazy_loading import load
from hetuflow_server.cli.options.shared import COMMON, everywhere, hand_on

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

C = TypeVar("C", bound=click.Command)

_WATCH: Final = "watch_seconds"
_WATCH_SECONDS: Final = 2.0
_WORTH_WATCHING: Final = frozenset({"list", "status", "graph"})

# (noun, parameter) → what it stands for; "" is any noun.
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


class Verb(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            hand_on(ctx)
        return rest

    def invoke(self, ctx: click.Context) -> Any:
        seconds = ctx.params.pop(_WATCH, None)
        if seconds is None:
            return super().invoke(ctx)
        return load("hetuflow_server.cli.output.watch:watched")(
            lambda: super(Verb, self).invoke(ctx), seconds
        )

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options first, what it shares with others below."""
        shared = {one.name for one in [*COMMON, *everywhere(), self.get_help_option(ctx)] if one is not None}
        for title, common in (("Options", False), ("Common options", True)):
            options = [one for one in self.get_params(ctx) if isinstance(one, click.Option)]
            mine = [one for one in options if (one.name in shared) is common]
            records = [record for one in mine if (record := one.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Noun(click.Group):
    """Its common options are not shown: each verb shows those it takes."""


def spoken(command: click.Command, noun_name: str = "") -> click.Command:
    """The command as a noun or a verb, with the options that may stand anywhere."""
    if not isinstance(command, click.Group):
        verb = _copied(command, Verb)
        verb.params = [*command.params, *_watch_options(verb), *everywhere()]
        for parameter in verb.params:
            parameter.type = _completed(noun_name, parameter)
        return verb
    noun = _copied(command, Noun)
    own_name = command.name or noun_name
    noun.commands = {name: spoken(child, own_name) for name, child in command.commands.items()}
    noun.params = [*command.params, *early_options(hidden=True)]
    return noun


def _watch_options(verb: click.Command) -> list[click.Option]:
    """For commands that only look at what a server has now."""
    asks = any(one.name == "output" for one in verb.params)
    if verb.name not in _WORTH_WATCHING or not asks:
        return []
    return [
        click.Option(
            ["-w", "--watch", _WATCH],
            is_flag=False,
            flag_value=_WATCH_SECONDS,
            type=click.FloatRange(min=0.2),
            metavar="[SECONDS]",
            help=f"Show it again and again, every {_WATCH_SECONDS:g} seconds if not given, until Ctrl-C.",
        )
    ]


def early_options(*, hidden: bool) -> list[click.Option]:
    options = [*(one.early(hidden=hidden) for one in COMMON), *everywhere()]
    for one in options:
        one.hidden = hidden
        one.type = _completed("", one)
    return options


def all_commands(
    group: click.Group, path: tuple[str, ...] = ()
) -> Iterator[tuple[tuple[str, ...], click.Command]]:
    """Every command below `group` with the words that lead to it; a noun stands before its verbs."""
    context = click.Context(group)
    for name in group.list_commands(context):
        command = group.get_command(context, name)
        if command is None or command.hidden:
            continue
        yield (*path, name), command
        if isinstance(command, click.Group):
            yield from all_commands(command, (*path, name))


class _Reference(click.ParamType[Any]):
    """A name or an id of something on the server, which the server completes."""

    def __init__(self, kind: str, given_as: click.ParamType[Any]) -> None:
        self.kind = kind
        self.name = given_as.name
        self._given_as = given_as

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:
        return self._given_as.convert(value, param, ctx)

    def shell_complete(
        self, ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem]:
        return _offered(ctx, self.kind, incomplete)


def _completed(noun: str, parameter: click.Parameter) -> click.ParamType[Any]:
    """The parameter's type with completion, where it stands for something there are names of."""
    name = parameter.name or ""
    kind = _COMPLETED.get((noun, name)) or _COMPLETED.get(("", name))
    if parameter.metavar == "FILE" and parameter.type is click.STRING:
        return click.Path()
    if kind is not None and parameter.type in {click.STRING, click.UUID}:
        return _Reference(kind, parameter.type)
    return parameter.type


def _offered(ctx: click.Context, kind: str, incomplete: str) -> list[CompletionItem]:
    found: list[CompletionItem] = load("hetuflow_server.cli.completion_items:offered")(ctx, kind, incomplete)
    return found


def _copied(command: click.Command, kind: type[C]) -> C:
    copy = kind.__new__(kind)
    copy.__dict__.update(command.__dict__)
    return copy
