"""`hetuflow completion bash | zsh | fish`."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

_COMPLETE_VARIABLE = "_HETUFLOW_COMPLETE"


_HELP = """Print the script that completes commands, options and names in your shell.

Names of jobs, namespaces, agents and other objects are read from the server, which takes at most 1.5 seconds.

\b
bash   in ~/.bashrc:   eval "$(hetuflow completion bash)"
zsh    in ~/.zshrc:    eval "$(hetuflow completion zsh)"
fish   once:           hetuflow completion fish > ~/.config/fish/completions/hetuflow.fish

Example: hetuflow completion bash
"""


@click.command("completion", help=_HELP)
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(context: click.Context, shell: str) -> None:
    kind = get_completion_class(shell)
    if kind is None:
        raise AssertionError(f"click has no completion for {shell}")
    root = context.find_root()
    click.echo(kind(root.command, {}, root.info_name or "hetuflow", _COMPLETE_VARIABLE).source())
