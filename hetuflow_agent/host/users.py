"""The users of this host that tasks may run as."""

from __future__ import annotations

import os
import pwd
from collections.abc import Iterable
from dataclasses import dataclass

import structlog

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.users")


@dataclass(frozen=True, slots=True)
class TaskUser:
    name: str
    uid: int
    gid: int
    home: str

    @property
    def environment(self) -> dict[str, str]:
        return {"HOME": self.home, "USER": self.name, "LOGNAME": self.name}


def find_user(name: str) -> TaskUser | None:
    try:
        found = pwd.getpwnam(name)
    except KeyError:
        return None
    return TaskUser(name, found.pw_uid, found.pw_gid, found.pw_dir)


def usable_users(wanted: Iterable[str]) -> tuple[str, ...]:
    """Those of `wanted` that tasks can really run as here; the others are logged."""
    names = tuple(wanted)
    if names and os.geteuid() != 0:
        log.warning("Only an agent of root can run tasks as other users: agent.run_as has no effect.")
        return ()
    for name in names:
        if find_user(name) is None:
            log.warning("There is no such user: correct agent.run_as.", user=name)
    return tuple(name for name in names if find_user(name) is not None)
