"""Which server a command calls, and with which credential."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import msgspec

from hetuflow_core.errors import HostBlocked
from hetuflow_core.resources.identity import LoginAnswer
from hetuflow_server.cli.profiles import SOON, Profile, Profiles

# Written by a running `hetuflow dev`, so that commands in its folder need no options.
DEV_INFO: Final = Path(".hetuflow", "dev.json")


@dataclass(frozen=True, slots=True)
class ServerConnection:
    """None selects the client's default."""

    url: str | None
    api_key: str | None = field(repr=False)


class DevAccess(msgspec.Struct, frozen=True):
    url: str
    api_key: str | None = None
    database_url: str | None = None


def find_connection(
    url: str | None,
    api_key: str | None,
    *,
    folder: Path,
    profiles: Profiles | None = None,
    profile: str | None = None,
    fresh: Callable[[Profiles, str], Profile] | None = None,
) -> ServerConnection:
    """Return the first of: the given options, the named profile, the running development system of this
    folder, and the profile in use.

    The credential of a profile is sent only to the address of that profile, never to a given `url`.
    """
    if api_key is None and profile is not None and profiles is not None:
        selected = fresh(profiles, profile) if fresh else profiles.get(profile)
        return ServerConnection(
            url or selected.url, selected.credential if url in {None, selected.url} else None
        )
    if url is not None:
        return ServerConnection(url, api_key)
    dev = read_dev_info(folder)
    if dev is not None:
        return ServerConnection(dev.url, api_key or dev.api_key)
    current = profiles.current if profiles is not None and api_key is None else None
    if profiles is not None and current is not None:
        selected = fresh(profiles, current) if fresh else profiles.get(current)
        return ServerConnection(selected.url, selected.credential)
    return ServerConnection(None, api_key)


def refreshed(
    profiles: Profiles, name: str, *, now: datetime, refresh: Callable[[str, str], LoginAnswer]
) -> Profile:
    """Return the profile; refresh its token first if it is about to expire."""
    profile = profiles.get(name)
    if not _expires_soon(profile, now):
        return profile
    with profiles.locked():
        profile = profiles.get(name)
        # Another command may have refreshed the token in the meantime.
        if not _expires_soon(profile, now) or profile.refresh_token is None:
            return profile
        answer = refresh(profile.url, profile.refresh_token)
        profile = logged_in(profile.url, answer, now)
        profiles.replace_locked(name, profile)
        return profile


def logged_in(url: str, answer: LoginAnswer, now: datetime) -> Profile:
    return Profile(
        url,
        user=answer.user,
        access_token=answer.access_token,
        refresh_token=answer.refresh_token,
        expires_at=now + timedelta(seconds=answer.expires_in),
    )


def _expires_soon(profile: Profile, now: datetime) -> bool:
    return profile.api_key is None and profile.expires_at is not None and profile.expires_at <= now + SOON


def read_dev_info(folder: Path) -> DevAccess | None:
    """Return the connection data of this folder's development system, if it runs."""
    file = folder / DEV_INFO
    try:
        return msgspec.json.decode(file.read_bytes(), type=DevAccess)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HostBlocked(f"{file} cannot be read ({error.strerror}): give --url and --api-key.") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise HostBlocked(
            f"{file} is not a valid file of `hetuflow dev`: remove it, or give --url and --api-key."
        ) from None
