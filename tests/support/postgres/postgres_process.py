"""A process that runs an embedded PostgreSQL until its standard input ends, for tests that kill it.

Writes one line of JSON when the server is ready. With --as it gives up root for good before it starts
anything, after loading all code: the interpreter may lie where that user cannot read.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import pwd
import signal
import sys
from pathlib import Path

import psycopg

from hetuflow_core.errors import HetuflowError
from hetuflow_server.embedded import EmbeddedPostgres, find_binaries


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("data_dir", type=Path)
    parser.add_argument("--binaries", type=Path)
    parser.add_argument("--as", dest="user")
    options = parser.parse_args()
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    binaries = find_binaries(options.binaries)
    if options.user:
        _become(options.user)
    cluster = EmbeddedPostgres(options.data_dir, binaries=binaries, settings={"fsync": False})
    try:
        cluster.start_blocking()
    except HetuflowError as error:
        _report({"kind": type(error).__name__, "error": str(error)})
        return 1
    server_uid = Path("/proc", str(cluster.pid)).stat().st_uid
    _report({"url": cluster.url, "pid": cluster.pid, "uid": os.getuid(), "server_uid": server_uid})
    sys.stdin.read()
    cluster.stop_blocking()
    return 0


def _report(facts: dict[str, str | int]) -> None:
    sys.stdout.write(json.dumps(facts) + "\n")
    sys.stdout.flush()


def _become(user: str) -> None:
    with contextlib.suppress(psycopg.OperationalError):  # loads what psycopg loads late
        psycopg.connect("postgresql://nobody@127.0.0.1:1/none", connect_timeout=1)
    entry = pwd.getpwnam(user)
    os.setgroups([])
    os.setgid(entry.pw_gid)
    os.setuid(entry.pw_uid)


if __name__ == "__main__":
    sys.exit(main())
