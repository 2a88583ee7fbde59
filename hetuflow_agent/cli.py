"""`hetuflow-agent`: runs the agent of this host."""

from __future__ import annotations

import os
import sys
from pathlib import Path

import click

import hetuflow_core.runtime.lean_libraries  # noqa: F401  before anything else loads them
from hetuflow_agent.app import become_keeper, build_agent
from hetuflow_agent.settings import AgentSettings
from hetuflow_core import __version__
from hetuflow_core.runtime.config.command import config_commands, config_option
from hetuflow_core.runtime.config.loading import load_settings
from hetuflow_core.runtime.exit_codes import run_command
from hetuflow_core.runtime.lifecycle import run_application
from hetuflow_core.runtime.log_files import log_stream
from hetuflow_core.runtime.logging import configure_logging

_PROGRAM = "hetuflow-agent"
_DEBUG = "--debug"
_INIT = "--init"


@click.group(invoke_without_command=True, context_settings={"help_option_names": ["-h", "--help"]})
@config_option
@click.option(_DEBUG, is_flag=True, help="Log at debug level and show tracebacks of errors.")
@click.option(
    _INIT,
    "as_init",
    is_flag=True,
    help="Run as the first process of a container: the keeper with the agent as its child. This is "
    "the default as "
    "process 1.",
)
@click.version_option(__version__, prog_name=_PROGRAM, message="%(prog)s %(version)s")
@click.pass_context
def cli(context: click.Context, config_path: Path | None, debug: bool, as_init: bool) -> int | None:
    """Get work from a Hetuflow server and run it on this host.

    Without a command, the agent runs until it is stopped.
    """
    if config_path is not None:
        # --config before the command also applies to the command.
        named = {"config_path": config_path}
        context.default_map = {"run": named, "config": {"check": named, "show": named}}
    if context.invoked_subcommand is None:
        return run_agent(config_path, debug=debug, as_init=as_init)
    return None


@cli.command("run")
@config_option
@click.option(_DEBUG, is_flag=True, help="Log at debug level and show tracebacks of errors.")
@click.pass_context
def run(context: click.Context, config_path: Path | None, debug: bool) -> int:
    """Run the agent; the same as no command."""
    parent = context.parent
    given = parent.params if parent is not None else {}
    return run_agent(config_path, debug=debug or bool(given.get("debug")), as_init=bool(given.get("as_init")))


cli.add_command(config_commands(AgentSettings, program="hetuflow-agent"))


def run_agent(config_path: Path | None, *, debug: bool, as_init: bool = False) -> int:
    settings = _load(config_path)
    level = "debug" if debug else settings.log.level
    configure_logging(level, settings.log.format, log_stream(settings.log, _PROGRAM))
    if as_init or os.getpid() == 1:
        become_keeper(settings.agent, [sys.executable, "-m", "hetuflow_agent", *_without_init(sys.argv[1:])])
    # The standard event loop, not uvloop, which spawns processes many times slower.
    return run_application(build_agent(settings, read_again=lambda: _load(config_path)))


def _load(config_path: Path | None) -> AgentSettings:
    return load_settings(AgentSettings, config_path=config_path)


def _without_init(arguments: list[str]) -> list[str]:
    return [argument for argument in arguments if argument != _INIT]


def main() -> None:
    arguments = sys.argv[1:]
    sys.exit(run_command(lambda: _invoke(arguments), debug=_DEBUG in arguments, program=_PROGRAM))


def _invoke(arguments: list[str]) -> int:
    code = cli.main(arguments, prog_name=_PROGRAM, standalone_mode=False)
    return code if isinstance(code, int) else 0
