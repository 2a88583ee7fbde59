"""Whom PostgreSQL runs as: it refuses to run as root, so root lends it a system account."""

from __future__ import annotations

import os
import pwd
import shutil
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hetuflow_core.errors import HostBlocked

ROOT = 0
LENT_ACCOUNTS = ("postgres", "hetuflow")
CREATED_ACCOUNT = "hetuflow"
_ADMIN_PATH = "/usr/sbin:/sbin:/usr/bin:/bin"


@dataclass(frozen=True, slots=True)
class Account:
    name: str
    uid: int
    gid: int

    @property
    def is_lent(self) -> bool:
        """Whether PostgreSQL runs as somebody other than this process."""
        return self.uid != os.geteuid()

    def may_enter(self, folder: Path) -> bool:
        """Whether every folder on the way to `folder`, and itself, lets this account through."""
        if not self.is_lent:
            return os.access(folder, os.X_OK)
        return all(self._may_search(step.stat()) for step in (folder, *folder.parents))

    def _may_search(self, status: os.stat_result) -> bool:
        if status.st_uid == self.uid:
            return bool(status.st_mode & 0o100)
        if status.st_gid == self.gid:
            return bool(status.st_mode & 0o010)
        return bool(status.st_mode & 0o001)


def choose_account(owner: int | None) -> Account:
    """Our own account, or for root the one that owns the cluster, else one that root can lend."""
    if os.geteuid() != ROOT:
        return _own_account()
    if owner is not None and owner != ROOT and (account := _account_of(owner)):
        return account
    for name in LENT_ACCOUNTS:
        if account := _account_named(name):
            return account
    return _create_account()


def _own_account() -> Account:
    uid = os.geteuid()
    account = _account_of(uid)
    if account is None:
        raise HostBlocked(
            f"PostgreSQL cannot run as user id {uid}, which has no name here: "
            "add the user to /etc/passwd or run as another one."
        )
    return Account(account.name, uid, os.getegid())


def _create_account() -> Account:
    for command in _creation_commands():
        subprocess.run(command, check=False, capture_output=True, stdin=subprocess.DEVNULL)  # noqa: S603 (fixed words)
        # Another process may have been faster: what counts is that the account is there.
        if account := _account_named(CREATED_ACCOUNT):
            return account
    raise HostBlocked(
        "PostgreSQL does not run as root and no system user could be created for it: "
        f"create one with 'useradd --system {CREATED_ACCOUNT}' or run Hetuflow as an ordinary user."
    )


def _creation_commands() -> list[Sequence[str]]:
    shell = shutil.which("nologin", path=_ADMIN_PATH) or "/bin/false"
    commands: list[Sequence[str]] = []
    if useradd := shutil.which("useradd", path=_ADMIN_PATH):
        commands.append(
            (useradd, "--system", "--user-group", "--no-create-home", "--shell", shell, CREATED_ACCOUNT)
        )
    if adduser := shutil.which("adduser", path=_ADMIN_PATH):  # busybox has no useradd
        commands.append((adduser, "-S", "-D", "-H", "-s", shell, CREATED_ACCOUNT))
    return commands


def _account_named(name: str) -> Account | None:
    try:
        entry = pwd.getpwnam(name)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid) if entry.pw_uid != ROOT else None


def _account_of(uid: int) -> Account | None:
    try:
        entry = pwd.getpwuid(uid)
    except KeyError:
        return None
    return Account(entry.pw_name, entry.pw_uid, entry.pw_gid)
