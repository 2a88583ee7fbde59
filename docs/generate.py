"""Writes the files that are made from declarations in the code: `python docs/generate.py`.

A test compares what is committed with what this would write.
"""  # noqa: INP001 - a program in the documentation folder, which is no package

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from pathlib import Path

from hetuflow_agent.settings import AgentSettings
from hetuflow_core import errors
from hetuflow_core.access.permissions import GLOBAL, MEANINGS, ROLE_PERMISSIONS, Permission
from hetuflow_core.access.roles import Role
from hetuflow_core.errors import HetuflowError
from hetuflow_core.jobfile import reference as job_files
from hetuflow_core.jobfile.schema import file_schema
from hetuflow_core.runtime.config.render import reference, template
from hetuflow_core.runtime.exit_codes import ExitCode, exit_code_for
from hetuflow_server.cli import reference as commands, task_exit_code
from hetuflow_server.cli.main import hetuflow
from hetuflow_server.settings import ServerSettings
from tools.package_picture import picture

ROOT = Path(__file__).resolve().parent.parent

_EXIT_CODES_HEAD = """# Exit codes

<!-- Made by docs/generate.py from hetuflow_core/runtime/exit_codes.py: edit that and run it again. -->

What `hetuflow` and `hetuflow-agent` exit with, so that scripts need not read messages. An error also prints
one sentence to standard error. The last column has the codes the REST API gives for the same errors.

| exit code | meaning | error codes |
|---|---|---|"""

_WAITED_HEAD = """
## Of a task that is waited for

`hetuflow job run` with `--wait` or `--logs` passes the task's own end on, as a shell would:

| exit code | the task |
|---|---|"""

_PERMISSIONS_HEAD = """# Permissions

<!-- Made by docs/generate.py from hetuflow_core/access/permissions.py: edit that and run it again. -->

Every call of the [REST API](api.md) needs one of these in the namespace of what it is about. A role
is a set of them, held in one namespace or in all; single ones can be added to a grant or withheld from it.
Those marked *all* are about the whole system: only who holds them in every namespace has them.

| permission | lets one | viewer | operator | editor | admin | where |
|---|---|---|---|---|---|---|"""


def generated() -> dict[str, str]:
    """Path under the top of the tree → its text."""
    return {
        "app.toml": template([ServerSettings, AgentSettings]),
        "docs/reference/configuration.md": reference(
            {"hetuflow server": ServerSettings, "hetuflow-agent": AgentSettings}
        ),
        "docs/reference/commands.md": commands.page(hetuflow),
        "docs/reference/exit-codes.md": exit_codes(),
        "docs/reference/permissions.md": permissions(),
        "docs/images/packages.svg": picture((ROOT / ".importlinter").read_text(encoding="utf-8")),
        "docs/reference/job-file.md": job_files.reference(),
        "docs/reference/job-file.schema.json": json.dumps(file_schema(), indent=1, ensure_ascii=False) + "\n",
    }


def permissions() -> str:
    """The reference page of permissions, with the roles that hold each."""
    rows = [
        f"| `{one}` | {MEANINGS[one]} | {_holders(one)} | {'all' if one in GLOBAL else 'one'} |"
        for one in Permission
    ]
    return "\n".join([_PERMISSIONS_HEAD, *rows, ""])


def _holders(permission: Permission) -> str:
    return " | ".join("yes" if permission in ROLE_PERMISSIONS[role] else "" for role in Role)


def exit_codes() -> str:
    """The reference page of exit codes, with the errors behind each."""
    names: dict[int, list[str]] = {code: [] for code in ExitCode}
    for error in sorted(_all_errors(), key=lambda one: one.code):
        names[exit_code_for(error(""))].append(f"`{error.code}`")
    rows = [f"| {code.value} | {code.description} | {', '.join(names[code])} |" for code in ExitCode]
    waited = [f"| {code} | {meaning} |" for code, meaning in task_exit_code.MEANINGS.items()]
    return "\n".join([_EXIT_CODES_HEAD, *rows, _WAITED_HEAD, *waited, ""])


def _all_errors() -> Iterator[type[HetuflowError]]:
    for value in vars(errors).values():
        if isinstance(value, type) and issubclass(value, HetuflowError):
            yield value


def main() -> None:
    for name, text in generated().items():
        path = ROOT / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        sys.stdout.write(f"{name} is written\n")


if __name__ == "__main__":
    main()
