"""What holds for every command, whoever wrote it: `hetuflow NOUN VERB`, with common options before and after.

Commands are declared with click as usual; `spoken` makes nouns and verbs of them when they are loaded.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TypeVar

import click

from hetuflow_server.cli.common_options import COMMON, everywhere, hand_on

C = TypeVar("C", bound=click.Command)


class Verb(click.Command):
    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        rest = super().parse_args(ctx, args)
        if not ctx.resilient_parsing:
            hand_on(ctx)
        return rest

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Its own options first, what it shares with others below."""
        shared = {one.name for one in [*COMMON, *everywhere(), self.get_help_option(ctx)] if one is not None}
        for title, common in (("Options", False), ("Common options", True)):
            mine = [one for one in self.get_params(ctx) if (one.name in shared) is common]
            records = [record for one in mine if (record := one.get_help_record(ctx)) is not None]
            if records:
                with formatter.section(title):
                    formatter.write_dl(records)


class Noun(click.Group):
    """Its common options are not shown: each verb shows those it takes."""


def spoken(command: click.Command) -> click.Command:
    """The command as a noun or a verb, with the options that may stand anywhere."""
    if not isinstance(command, click.Group):
        verb = _copied(command, Verb)
        verb.params = [*command.params, *everywhere()]
        return verb
    noun = _copied(command, Noun)
    noun.commands = {name: spoken(child) for name, child in command.commands.items()}
    noun.params = [*command.params, *early_options(hidden=True)]
    return noun


def early_options(*, hidden: bool) -> list[click.Option]:
    options = [*(one.early(hidden=hidden) for one in COMMON), *everywhere()]
    for one in options:
        one.hidden = hidden
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


def _copied(command: click.Command, kind: type[C]) -> C:
    copy = kind.__new__(kind)
    copy.__dict__.update(command.__dict__)
    return copy
