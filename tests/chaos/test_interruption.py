"""A self-test that is told to end leaves nothing behind."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

from hetuflow_core.runtime.exit_codes import ExitCode
from hetuflow_selftest.scene.processes import command_of
from tests.support.waiting import wait_until


def test_everything_is_ended_and_removed(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    command = [sys.executable, "-m", "hetuflow_server", "selftest", "--quick", "--fault", "fill-disk"]
    with subprocess.Popen(
        command,
        env={**os.environ, "TMPDIR": str(tmp_path)},
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        # By then there are PostgreSQL, a proxy and servers, and a file system if we may mount one.
        wait_until(lambda: list(tmp_path.glob("hetuflow-selftest-*/server-2.log")), what="the last server")
        # Which does what Ctrl-C does.
        process.send_signal(signal.SIGTERM)
        _, said = process.communicate(timeout=120)
    assert process.returncode == ExitCode.INTERRUPTED, said
    assert "Traceback" not in said
    assert list(tmp_path.iterdir()) == []
    assert not re.search(rf" {re.escape(str(tmp_path))}/", Path("/proc/mounts").read_text())
    alive = [command_of(int(folder.name)) for folder in Path("/proc").iterdir() if folder.name.isdecimal()]
    assert [command for command in alive if any(str(tmp_path) in word for word in command)] == []
