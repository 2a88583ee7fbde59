"""A run of tests that is killed leaves nothing behind."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from tests.support.processes.processes import gone
from tests.support.waiting import wait_until

# A worker that is killed while a keeper runs a task for it, and another process.
WORKER = """
import asyncio, os, signal, subprocess, sys
from pathlib import Path
from tests.integration.agent.test_keeper import command, pid_of, running
from hetuflow_agent.processes.processes import Processes
from tests.support.processes.guardian import guard

folder = Path(sys.argv[1])
guardian = guard(folder)
beside = subprocess.Popen(["bash", "-c", "while :; do sleep 600; done"])

async def main():
    processes = Processes(folder, session="s", version="1")
    await processes.start()
    task = await running(processes.spawn(command(folder, "exec sleep 600")))
    print(guardian.pid, beside.pid, pid_of(processes), task, flush=True)
    os.kill(os.getpid(), signal.SIGKILL)

asyncio.run(main())
"""


def test_what_a_killed_worker_has_started_ends(tmp_path: Path) -> None:
    root = Path(__file__).parents[3]
    worker = subprocess.run(
        [sys.executable, "-c", WORKER, str(tmp_path)],
        cwd=root,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    pids = [int(word) for word in worker.stdout.split("\n")[-2].split()]
    assert len(pids) == 4, worker.stderr
    wait_until(lambda: all(gone(pid) for pid in pids), timeout=60, what="everything to end")
