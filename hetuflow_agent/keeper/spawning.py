"""Starts one command in a new session, without standard input and with its output in files.

posix_spawn costs a third of a fork, but it cannot change the working directory. The keeper has a single
thread, so the keeper itself enters the directory before.
"""

from __future__ import annotations

import errno
import os
import pwd
import signal
from collections.abc import Mapping
from typing import Final

from hetuflow_agent.keeper.task import Spec

# Python ignores these signals, and a new program would inherit that.
_IGNORED_BY_PYTHON: Final = (signal.SIGPIPE, signal.SIGXFSZ)
_APPEND: Final = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
_DEFAULT_PATH: Final = "/usr/local/bin:/usr/bin:/bin"


class CannotStart(Exception):
    """The command could not be started; `what` is at fault: program, cwd, output, user or command."""

    def __init__(self, what: str, error: OSError | ValueError) -> None:
        super().__init__(str(error))
        self.what = what
        self.errno = error.errno if isinstance(error, OSError) else None
        self.text = (error.strerror if isinstance(error, OSError) else None) or str(error)


def spawn(spec: Spec) -> int:
    """The pid of the new process; raises CannotStart."""
    at_fault = "cwd"
    outputs: list[int] = []
    try:
        os.chdir(spec.cwd)
        at_fault = "output"
        outputs.append(os.open(spec.stdout, _APPEND, 0o600))
        outputs.append(os.open(spec.stderr, _APPEND, 0o600))
        at_fault = "program"
        return _spawn(spec, outputs) if spec.user is None else _spawn_as(spec, outputs, spec.user)
    except OSError as error:
        raise CannotStart(at_fault, error) from error
    except ValueError as error:
        raise CannotStart("command", error) from error
    finally:
        for descriptor in outputs:
            os.close(descriptor)


def _spawn(spec: Spec, outputs: list[int]) -> int:
    program = find_program(spec.argv[0], spec.env)
    return os.posix_spawn(
        program,
        spec.argv,
        spec.env,
        # The standard input of the keeper is /dev/null.
        file_actions=((os.POSIX_SPAWN_DUP2, outputs[0], 1), (os.POSIX_SPAWN_DUP2, outputs[1], 2)),
        setsid=True,
        setsigmask=(),
        setsigdef=_IGNORED_BY_PYTHON,
    )


def _identity(user: str) -> tuple[int, int, list[int]]:
    """The uid, the gid and all groups of a user."""
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise CannotStart("user", ValueError(f"there is no user {user}")) from None
    return found.pw_uid, found.pw_gid, os.getgrouplist(user, found.pw_gid)


def _spawn_as(spec: Spec, outputs: list[int], user: str) -> int:
    """Start the command as another user. posix_spawn cannot do that, so this forks."""
    import subprocess  # noqa: PLC0415  most keepers never need it

    uid, gid, groups = _identity(user)
    program = find_program(spec.argv[0], spec.env)
    if os.geteuid() != 0:
        raise CannotStart("user", PermissionError(errno.EPERM, os.strerror(errno.EPERM)))
    process = subprocess.Popen(  # noqa: S603  the command of the job
        spec.argv,
        executable=program,
        env=spec.env,
        stdout=outputs[0],
        stderr=outputs[1],
        start_new_session=True,
        user=uid,
        group=gid,
        extra_groups=groups,
    )
    # `TaskTable.reap` waits for all children.
    process.returncode = 0
    return process.pid


def find_program(name: str, env: Mapping[str, str]) -> str:
    """The path of the program, found with the PATH of the command and relative to the working directory."""
    if not name:
        raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
    if "/" in name:
        return name
    refused = False
    for folder in env.get("PATH", _DEFAULT_PATH).split(":"):
        candidate = f"{folder or '.'}/{name}"
        if os.access(candidate, os.X_OK) and not os.path.isdir(candidate):  # noqa: PTH112  for every command: no Path object per candidate
            return candidate
        refused = refused or os.path.isfile(candidate)  # noqa: PTH113  as above
    code = errno.EACCES if refused else errno.ENOENT
    raise OSError(code, os.strerror(code), name)
