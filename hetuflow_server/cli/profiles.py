"""Named profiles: the address and credential of a server, in a file that only the user can read."""

from __future__ import annotations

import contextlib
import fcntl
import os
import tempfile
from collections.abc import Iterator, Mapping
from datetime import datetime, timedelta
from difflib import get_close_matches
from pathlib import Path
from typing import Final

import msgspec

from hetuflow_core.errors import HostBlocked, NotFound

DEFAULT_PROFILE: Final = "default"
# Tokens that expire within this time are refreshed before use.
SOON: Final = timedelta(seconds=30)


class Profile(msgspec.Struct, frozen=True, omit_defaults=True):
    url: str
    # Either a key or tokens of a login.
    api_key: str | None = None
    user: str | None = None
    access_token: str | None = None
    refresh_token: str | None = None
    expires_at: datetime | None = None

    def __repr__(self) -> str:
        return f"Profile({self.url!r}, user={self.user!r})"

    @property
    def credential(self) -> str | None:
        return self.api_key or self.access_token


class _File(msgspec.Struct, frozen=True):
    current: str | None = None
    profiles: dict[str, Profile] = {}


class Profiles:
    def __init__(self, path: Path) -> None:
        self.path = path

    @classmethod
    def of_user(cls, env: Mapping[str, str]) -> Profiles:
        """Return the profiles of the current user."""
        home = env.get("XDG_CONFIG_HOME") or str(Path(env.get("HOME") or "~").expanduser() / ".config")
        return cls(Path(home) / "hetuflow" / "profiles.json")

    @property
    def current(self) -> str | None:
        return self._read().current

    def all(self) -> dict[str, Profile]:
        return self._read().profiles

    def get(self, name: str) -> Profile:
        profile = self._read().profiles.get(name)
        if profile is None:
            near = get_close_matches(name, self._read().profiles)
            advice = (
                f"did you mean {near[0]}?" if near else f"create it with `hetuflow login --profile {name}`."
            )
            raise NotFound(f"There is no profile {name}: {advice}", code="profile.not_found")
        return profile

    def put(self, name: str, profile: Profile, *, use: bool) -> None:
        with self.locked():
            file = self._read()
            current = name if use or file.current is None else file.current
            self._write(_File(current, {**file.profiles, name: profile}))

    def replace_locked(self, name: str, profile: Profile) -> None:
        """Replace a profile; the caller holds the lock."""
        file = self._read()
        self._write(_File(file.current, {**file.profiles, name: profile}))

    def use(self, name: str) -> None:
        with self.locked():
            self.get(name)
            self._write(_File(name, self._read().profiles))

    def remove(self, name: str) -> None:
        with self.locked():
            self.get(name)
            file = self._read()
            remaining = {other: profile for other, profile in file.profiles.items() if other != name}
            self._write(_File(None if file.current == name else file.current, remaining))

    @contextlib.contextmanager
    def locked(self) -> Iterator[None]:
        """Lock the file against other commands; a refresh token can be used only once."""
        with self._explained():
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            lock = os.open(self.path.with_suffix(".lock"), os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            yield
        finally:
            os.close(lock)

    def _read(self) -> _File:
        with self._explained():
            try:
                return msgspec.json.decode(self.path.read_bytes(), type=_File)
            except FileNotFoundError:
                return _File()
            except (msgspec.DecodeError, UnicodeDecodeError):
                raise HostBlocked(
                    f"{self.path} is not a valid profile file: remove it and log in again."
                ) from None

    def _write(self, file: _File) -> None:
        with self._explained():
            # mkstemp creates the file readable only for its owner.
            handle, name = tempfile.mkstemp(dir=self.path.parent, prefix=".profiles-")
            with os.fdopen(handle, "wb") as out:
                out.write(msgspec.json.format(msgspec.json.encode(file), indent=2))
            Path(name).replace(self.path)

    @contextlib.contextmanager
    def _explained(self) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            raise HostBlocked(f"{self.path} cannot be used ({error.strerror}).") from error
