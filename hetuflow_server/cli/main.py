"""The `hetuflow` command: each subcommand is loaded when it is called, so that the others cost nothing."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

import click

from hetuflow_core import __version__
from hetuflow_core.runtime.exit_codes import run_command
from hetuflow_server.cli.command_tree import Noun, early_options, spoken
from hetuflow_server.cli.lazy_loading import load

# name → (where it is, its line in the help); the line stands here so that --help loads nothing.
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "apply": ("hetuflow_server.cli.commands.job_files.apply:apply", "Create and change jobs from files."),
    "diff": ("hetuflow_server.cli.commands.job_files.apply:diff", "Show what applying files would change."),
    "export": ("hetuflow_server.cli.commands.job_files.export:export", "Write what there is as job files."),
    "import": (
        "hetuflow_server.cli.commands.job_files.import_jobs:import_group",
        "Make job files from crontabs and systemd timers.",
    ),
    "schema": ("hetuflow_server.cli.commands.job_files.schema:schema", "Print the JSON Schema of job files."),
    "job": (
        "hetuflow_server.cli.commands.job:job_group",
        "List, show, make, change, run, pause and delete jobs.",
    ),
    "schedule": (
        "hetuflow_server.cli.commands.schedule.schedule:schedule_group",
        "List, make, change, pause and resume schedules; see what comes.",
    ),
    "backfill": (
        "hetuflow_server.cli.commands.schedule.backfill:backfill_group",
        "Run past fires of a schedule; see how far that has come.",
    ),
    "daemon": (
        "hetuflow_server.cli.commands.daemon:daemon_group",
        "List, stop, start, scale and restart daemons.",
    ),
    "task": (
        "hetuflow_server.cli.commands.task.task:task_group",
        "List, show, cancel and repeat tasks; read their logs.",
    ),
    "instance": (
        "hetuflow_server.cli.commands.task.instance:instance_group",
        "List, show and end single attempts at tasks.",
    ),
    "event": ("hetuflow_server.cli.commands.event:event_group", "Emit, list, show and replay events."),
    "flow": (
        "hetuflow_server.cli.commands.flow:flow_group",
        "List and draw runs of flows; cancel, repeat and approve.",
    ),
    "limit": ("hetuflow_server.cli.commands.limit:limit_group", "List, define and change limits."),
    "secret": (
        "hetuflow_server.cli.commands.secret:secret_group",
        "Set, list and delete secrets; rotate their key.",
    ),
    "audit": (
        "hetuflow_server.cli.commands.audit:audit_group",
        "Read the audit trail, and check that it is whole.",
    ),
    "webhook": (
        "hetuflow_server.cli.commands.webhook:webhook_group",
        "Tell others of tasks that end; see what was not delivered.",
    ),
    "calendar": (
        "hetuflow_server.cli.commands.schedule.calendar:calendar_group",
        "Show calendars and their days.",
    ),
    "namespace": (
        "hetuflow_server.cli.commands.namespace:namespace_group",
        "List, make and weigh namespaces; bind them to servers.",
    ),
    "status": ("hetuflow_server.cli.commands.status:status", "Show the queue, the agents and the servers."),
    "login": ("hetuflow_server.cli.commands.login:login", "Log in and remember it under a profile."),
    "logout": ("hetuflow_server.cli.commands.login:logout", "Log out and forget a profile."),
    "whoami": (
        "hetuflow_server.cli.commands.whoami:whoami",
        "Show who the server takes you for, and what you may do.",
    ),
    "profile": (
        "hetuflow_server.cli.commands.profile:profile_group",
        "List and choose the servers you have logged in to.",
    ),
    "user": (
        "hetuflow_server.cli.commands.user.user:user_group",
        "Make, list, grant, disable and delete users.",
    ),
    "key": ("hetuflow_server.cli.commands.key:key_group", "Make, list, rotate and revoke API keys."),
    "agent": (
        "hetuflow_server.cli.commands.agent.agent:agent_group",
        "List, drain, configure and stop agents; make their tokens.",
    ),
    "dev": ("hetuflow_server.cli.commands.dev:dev", "Run embedded PostgreSQL, one server and one agent."),
    "server": ("hetuflow_server.cli.commands.server:server", "Run a server; list those that run."),
    "db": ("hetuflow_server.cli.commands.db:db_group", "Migrate the database."),
    "doctor": (
        "hetuflow_server.cli.commands.doctor:doctor",
        "Check the database's consistency, and repair it.",
    ),
    "selftest": (
        "hetuflow_selftest.cli:selftest",
        "Torment a system of its own, and judge whether it kept its promises.",
    ),
    "completion": (
        "hetuflow_server.cli.commands.completion:completion",
        "Complete commands, options and names behind TAB in your shell.",
    ),
    "config": (
        "hetuflow_server.cli.commands.config:config_group",
        "Check, show and write the configuration.",
    ),
}


# How --help sorts them; one that is not named here stands at the end.
SECTIONS: Final[Mapping[str, Sequence[str]]] = {
    "Files": ("apply", "diff", "export", "schema"),
    "What runs": (
        "job",
        "task",
        "instance",
        "flow",
        "schedule",
        "backfill",
        "daemon",
        "event",
    ),
    "What it needs": ("calendar", "limit", "secret", "webhook"),
    "How it goes": ("status", "audit", "doctor", "selftest"),
    "Who may": ("login", "logout", "whoami", "profile", "user", "key"),
    "Where it runs": ("dev", "server", "agent", "namespace", "db", "config", "completion"),
}

# Verbs that people type without their noun.
_NOUN_LEFT_OUT: Final[Mapping[str, str]] = {
    "run": "job run",
    "logs": "task logs",
    "cancel": "task cancel",
    "retry": "task retry",
    "emit": "event emit",
    "approve": "flow approve",
    "next": "schedule next",
    "bind": "namespace bind",
    "upgrade": "db upgrade",
    "drain": "agent drain",
}


class LazyGroup(Noun):
    def list_commands(self, _: click.Context) -> list[str]:
        return list(COMMANDS)

    def get_command(self, _: click.Context, name: str) -> click.Command | None:
        return spoken(load(COMMANDS[name][0])) if name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in _NOUN_LEFT_OUT:
            ctx.fail(f"No such command {name!r}. Did you mean `hetuflow {_NOUN_LEFT_OUT[name]}`?")
        if name not in COMMANDS and not ctx.resilient_parsing:
            raise click.exceptions.NoSuchCommand(name, possibilities=COMMANDS, ctx=ctx)
        return super().resolve_command(ctx, args)

    def format_commands(self, _: click.Context, formatter: click.HelpFormatter) -> None:
        sorted_in = {name for names in SECTIONS.values() for name in names}
        rest = [name for name in COMMANDS if name not in sorted_in]
        for title, names in {**SECTIONS, "More": rest}.items():
            if names:
                with formatter.section(title):
                    formatter.write_dl([(name, COMMANDS[name][1]) for name in names])


@click.group(
    cls=LazyGroup,
    params=[*early_options(hidden=False)],
    context_settings={"max_content_width": 100, "help_option_names": ["-h", "--help"]},
)
@click.version_option(__version__, prog_name="hetuflow")
def hetuflow() -> None:
    """A workflow engine that needs nothing but PostgreSQL.

    `hetuflow NOUN VERB --help` tells of one command, with an example. The options below may stand before the
    noun, before the verb or after it.

    Example: hetuflow job run nightly-report --logs
    """


def spare_imports() -> None:
    """Let httpx do without its own command, for which it would load rich and pygments; it can."""
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None stands for "not to be had"


def main() -> None:
    arguments = sys.argv[1:]
    spare_imports()

    def run() -> int:
        result = hetuflow.main(arguments, prog_name="hetuflow", standalone_mode=False)
        return result if isinstance(result, int) else 0

    sys.exit(run_command(run, debug="--debug" in arguments))
