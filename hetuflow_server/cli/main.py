"""The `hetuflow` command. Subcommands are loaded when they are called, which keeps the start fast."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from typing import Final

import click

from hetuflow_core import __version__
from hetuflow_core.runtime.exit_codes import run_command
from hetuflow_server.cli.command_tree import Noun, early_options, with_common_behaviour
from hetuflow_server.cli.lazy_loading import load

# name → (module and object, summary); the summary is here so that --help loads no commands.
COMMANDS: Final[Mapping[str, tuple[str, str]]] = {
    "apply": ("hetuflow_server.cli.commands.job_files.apply:apply", "Create and change jobs from files."),
    "diff": ("hetuflow_server.cli.commands.job_files.apply:diff", "Show what applying files would change."),
    "export": (
        "hetuflow_server.cli.commands.job_files.export:export",
        "Export jobs and other objects as job files.",
    ),
    "import": (
        "hetuflow_server.cli.commands.job_files.import_jobs:import_group",
        "Convert crontabs and systemd timers to job files.",
    ),
    "schema": ("hetuflow_server.cli.commands.job_files.schema:schema", "Print the JSON Schema of job files."),
    "job": (
        "hetuflow_server.cli.commands.job:job_group",
        "List, show, create, edit, run and delete jobs.",
    ),
    "schedule": (
        "hetuflow_server.cli.commands.schedule.schedule:schedule_group",
        "List, create, edit, enable and disable schedules.",
    ),
    "backfill": (
        "hetuflow_server.cli.commands.schedule.backfill:backfill_group",
        "Run past fires of schedules.",
    ),
    "daemon": (
        "hetuflow_server.cli.commands.daemon:daemon_group",
        "List, stop, start, scale and restart daemons.",
    ),
    "task": (
        "hetuflow_server.cli.commands.task.task:task_group",
        "List, show, cancel and retry tasks; read their logs.",
    ),
    "instance": (
        "hetuflow_server.cli.commands.task.instance:instance_group",
        "List, show and end attempts at tasks.",
    ),
    "event": ("hetuflow_server.cli.commands.event:event_group", "Emit, list, show and replay events."),
    "flow": (
        "hetuflow_server.cli.commands.flow:flow_group",
        "List, draw, cancel, retry and approve flow runs.",
    ),
    "limit": (
        "hetuflow_server.cli.commands.limit:limit_group",
        "List, create and change concurrency limits.",
    ),
    "secret": (
        "hetuflow_server.cli.commands.secret:secret_group",
        "Set, list and delete secrets; rotate their key.",
    ),
    "audit": (
        "hetuflow_server.cli.commands.audit:audit_group",
        "List and verify the audit trail.",
    ),
    "webhook": (
        "hetuflow_server.cli.commands.webhook:webhook_group",
        "List, create and change webhooks; see failed deliveries.",
    ),
    "calendar": (
        "hetuflow_server.cli.commands.schedule.calendar:calendar_group",
        "List, show and edit calendars.",
    ),
    "namespace": (
        "hetuflow_server.cli.commands.namespace:namespace_group",
        "List, create, configure and bind namespaces.",
    ),
    "status": ("hetuflow_server.cli.commands.status:status", "Show the queue, the agents and the servers."),
    "login": ("hetuflow_server.cli.commands.login:login", "Log in and save the credentials in a profile."),
    "logout": ("hetuflow_server.cli.commands.login:logout", "Log out and delete a profile."),
    "whoami": (
        "hetuflow_server.cli.commands.whoami:whoami",
        "Show your identity and your permissions.",
    ),
    "profile": (
        "hetuflow_server.cli.commands.profile:profile_group",
        "List, select and delete saved logins.",
    ),
    "user": (
        "hetuflow_server.cli.commands.user.user:user_group",
        "Create, list, grant, disable and delete users.",
    ),
    "key": ("hetuflow_server.cli.commands.key:key_group", "Create, list, rotate and revoke API keys."),
    "agent": (
        "hetuflow_server.cli.commands.agent.agent:agent_group",
        "List, drain, configure and stop agents; manage their tokens.",
    ),
    "dev": ("hetuflow_server.cli.commands.dev:dev", "Run embedded PostgreSQL, one server and one agent."),
    "server": ("hetuflow_server.cli.commands.server:server", "Run a server; list servers."),
    "db": ("hetuflow_server.cli.commands.db:db_group", "Migrate the database."),
    "doctor": (
        "hetuflow_server.cli.commands.doctor:doctor",
        "Check and repair the consistency of the database.",
    ),
    "selftest": (
        "hetuflow_selftest.cli:selftest",
        "Test a separate system under faults and check its guarantees.",
    ),
    "completion": (
        "hetuflow_server.cli.commands.completion:completion",
        "Set up completion in your shell.",
    ),
    "config": (
        "hetuflow_server.cli.commands.config:config_group",
        "Check, show and write the configuration.",
    ),
}


# The sections of --help. Commands that are missing here are listed at the end.
SECTIONS: Final[Mapping[str, Sequence[str]]] = {
    "Job files": ("apply", "diff", "export", "import", "schema"),
    "Jobs and tasks": (
        "job",
        "task",
        "instance",
        "flow",
        "schedule",
        "backfill",
        "daemon",
        "event",
    ),
    "Shared objects": ("calendar", "limit", "secret", "webhook"),
    "Monitoring": ("status", "audit", "doctor", "selftest"),
    "Access": ("login", "logout", "whoami", "profile", "user", "key"),
    "System": ("dev", "server", "agent", "namespace", "db", "config", "completion"),
}

# Verbs that are often typed without their noun.
_MISSING_NOUNS: Final[Mapping[str, str]] = {
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
        return with_common_behaviour(load(COMMANDS[name][0])) if name in COMMANDS else None

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        name = args[0]
        if name in _MISSING_NOUNS:
            ctx.fail(f"Unknown command {name!r}. Did you mean `hetuflow {_MISSING_NOUNS[name]}`?")
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

    `hetuflow NOUN VERB --help` shows the help of a command with an example. You can write the options below
    before the noun, before the verb or after it.

    Example: hetuflow job run nightly-report --logs
    """


def spare_imports() -> None:
    """Keep httpx from importing its command line, which would load rich and pygments."""
    sys.modules.setdefault("httpx._main", None)  # type: ignore[arg-type]  # None makes the import fail, which httpx handles


def main() -> None:
    arguments = sys.argv[1:]
    spare_imports()

    def run() -> int:
        result = hetuflow.main(arguments, prog_name="hetuflow", standalone_mode=False)
        return result if isinstance(result, int) else 0

    sys.exit(run_command(run, debug="--debug" in arguments))
