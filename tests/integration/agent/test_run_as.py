"""Tasks that run as another user of the host."""

from __future__ import annotations

import os
import pwd
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from hetuflow_agent.attempt.runner import OnStop, Runner
from hetuflow_agent.host.users import usable_users
from hetuflow_core.states import InstanceStatus as Status
from tests.integration.agent.conftest import Bench
from tests.support.agent.assignments import assignment_of
from tests.support.waiting import wait_until_async

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can start processes of other users")
NOBODY = "nobody"


def let_pass(folder: Path) -> None:
    """The folders of tests are closed to others; an operator's are not."""
    for each in (folder, *folder.parents):
        mode = stat.S_IMODE(each.stat().st_mode)
        if mode & 0o011 != 0o011:
            each.chmod(mode | 0o011)


@as_root
async def test_a_task_has_the_rights_of_its_user_and_no_others(bench: Bench, tmp_path: Path) -> None:
    secret = tmp_path / "secret"
    secret.touch(0o600)
    let_pass(bench.dependencies.data.instances)
    runner = Runner(replace(bench.dependencies, run_as=(NOBODY,)), slots=1, on_stop=OnStop.END)
    script = (
        f"id -un; id -u; id -G; echo $HOME:$USER:$LOGNAME; cat {secret} && exit 3; "
        'echo made > file && echo said=yes >> "$HETUFLOW_OUTPUT" && echo "50 half" >> "$HETUFLOW_PROGRESS" '
        '&& ! mv "$HETUFLOW_OUTPUT" elsewhere 2>/dev/null && ! ls ../..'
    )
    assignment = assignment_of(script=script, user=NOBODY)
    runner.accept([assignment])
    finish = await bench.desk.result_of(assignment.instance_id)
    await wait_until_async(lambda: bench.dependencies.shipper.drained(assignment.token))
    printed = bench.book.streams[assignment.instance_id, "stdout"].decode().splitlines()
    assert (finish.status, finish.output) == (Status.SUCCEEDED, {"said": "yes"}), bench.book.streams
    user = pwd.getpwnam(NOBODY)
    assert printed[:2] == [NOBODY, str(user.pw_uid)]
    assert {int(group) for group in printed[2].split()} == set(os.getgrouplist(NOBODY, user.pw_gid))
    assert printed[3] == f"{user.pw_dir}:{NOBODY}:{NOBODY}"
    assert b"ermission" in bench.book.streams[assignment.instance_id, "stderr"]


async def test_a_user_the_agent_does_not_list_is_refused(bench: Bench) -> None:
    assignment = assignment_of(["true"], user=NOBODY)
    bench.runner.accept([assignment])
    finish = await bench.desk.result_of(assignment.instance_id)
    assert (finish.status, finish.reason) == (Status.FAILED, "spawn_failed")
    assert finish.message is not None
    assert finish.message.startswith("This agent may not run tasks as nobody: list the user in agent.run_as")
    assert finish.started_at is None


def test_users_are_announced_only_where_they_can_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    assert usable_users([NOBODY, "no-such-user-here"]) == (NOBODY,)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert usable_users([NOBODY]) == ()
