"""Passwords: argon2id, off the event loop, and only so many at a time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Final, TypeVar

from argon2 import PasswordHasher
from argon2.exceptions import InvalidHashError, VerificationError

from hetuflow_core.errors import Fault, Invalid, TooMany

# Each hashing takes 32 MiB and some tens of milliseconds of one processor.
_AT_ONCE: Final = 2
_MOST_WAITING: Final = 64
_SHORTEST: Final = 10
_LONGEST: Final = 256

T = TypeVar("T")


class Passwords:
    def __init__(self, *, most_waiting: int = _MOST_WAITING) -> None:
        self._most_waiting = most_waiting
        self._hasher = PasswordHasher(time_cost=2, memory_cost=32 * 1024, parallelism=1)
        self._threads = ThreadPoolExecutor(_AT_ONCE, thread_name_prefix="password")
        self._waiting = 0
        # What a password is compared with when there is nobody, so that this takes as long.
        self._nobodys: str | None = None

    async def hash(self, password: str) -> str:
        return await self._run(lambda: self._hasher.hash(password))

    async def matches(self, hashed: str | None, password: str) -> bool:
        """Whether a password is the hashed one; takes the same time when there is no hash."""
        return await self._run(lambda: self._matches(hashed, password))

    def outdated(self, hashed: str) -> bool:
        return self._hasher.check_needs_rehash(hashed)

    def _matches(self, hashed: str | None, password: str) -> bool:
        if self._nobodys is None:
            self._nobodys = self._hasher.hash("nobody's")
        try:
            self._hasher.verify(hashed or self._nobodys, password)
        except (VerificationError, InvalidHashError):
            return False
        return hashed is not None

    async def _run(self, work: Callable[[], T]) -> T:
        """Do it in a thread; refuse when so many wait that the last would wait for long."""
        if self._waiting >= self._most_waiting:
            raise TooMany(
                "Too many are logging in at this moment: try again in a few seconds.", retry_after=5
            )
        self._waiting += 1
        try:
            return await asyncio.get_running_loop().run_in_executor(self._threads, work)
        finally:
            self._waiting -= 1


def check_password(password: str, name: str) -> None:
    """Refuse a password that is too short, too long or the user's name."""
    fault = None
    if not _SHORTEST <= len(password) <= _LONGEST:
        fault = f"must have {_SHORTEST} to {_LONGEST} characters"
    elif password.casefold() == name.casefold():
        fault = "must not be the name of the user"
    if fault:
        raise Invalid(f"The password {fault}.", code="password.refused", faults=[Fault("password", fault)])
