"""The reference page of commands, made from what they say of themselves."""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator
from typing import Final

import click

from hetuflow_server.cli.command_tree import all_commands
from hetuflow_server.cli.options.shared import COMMON, everywhere

EXAMPLE: Final = re.compile(r"^Example: (.+)$", re.MULTILINE)

_HEAD: Final = """# Commands of hetuflow

<!-- Made by docs/generate.py from the commands themselves: edit those and run it again. -->

`hetuflow NOUN VERB`. `--help` says what stands here. [Commands](../howto/commands.md) tells
how they are used together, [Exit codes](exit-codes.md) what they exit with.

## Common options

Before the noun, before the verb or after it; what stands last counts. Commands that ask no server take fewer.
"""


def page(root: click.Group) -> str:
    """All commands with their options and an example each, as Markdown."""
    parts = [_HEAD, _options([one.early(hidden=False) for one in COMMON] + everywhere()), ""]
    for path, command in all_commands(root):
        parts += [*_section(root, path, command), ""]
    return "\n".join(parts).rstrip("\n") + "\n"


def example_of(command: click.Command) -> str | None:
    """The line of its help that shows how it is called."""
    found = EXAMPLE.search(inspect.cleandoc(command.help or ""))
    return found[1] if found else None


def _section(root: click.Group, path: tuple[str, ...], command: click.Command) -> Iterator[str]:
    name = " ".join((root.name or "", *path))
    yield f"{'##' if len(path) == 1 else '###'} {name}"
    yield ""
    yield from _paragraphs(command)
    if isinstance(command, click.Group) and not command.invoke_without_command:
        return
    context = click.Context(command, info_name=name)
    usage = " ".join(command.collect_usage_pieces(context))
    example = example_of(command)
    yield f"```console\n$ {name} {usage}".rstrip()
    if example is not None:
        yield f"$ {example}"
    yield "```"
    shared = {one.name for one in COMMON} | {one.name for one in everywhere()}
    own = [one for one in command.params if isinstance(one, click.Option) and one.name not in shared]
    if own:
        yield ""
        yield _options(own)


def _paragraphs(command: click.Command) -> Iterator[str]:
    for part in re.split(r"\n\s*\n", inspect.cleandoc(command.help or "")):
        if part.startswith("\b"):
            # Laid out by hand.
            yield f"```text\n{part.removeprefix(chr(8)).strip(chr(10))}\n```\n"
        elif not part.startswith("Example: "):
            yield f"{_escaped(' '.join(part.split()))}\n"


def _options(options: list[click.Option]) -> str:
    rows = ["| option | meaning |", "|---|---|"]
    for option in options:
        record = option.get_help_record(click.Context(click.Command("x")))
        if record is not None:
            flags, meaning = record
            rows.append(f"| `{_cell(flags)}` | {_escaped(_cell(meaning))} |")
    return "\n".join(rows)


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")


def _escaped(text: str) -> str:
    """What Markdown would take for markup outside of code."""
    parts = text.split("`")
    parts[::2] = [re.sub(r"([*_<\[\]])", r"\\\1", part) for part in parts[::2]]
    return "`".join(parts)
