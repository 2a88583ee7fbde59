"""Which server a command talks to, and as whom."""

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

# Written by a running `hetuflow dev`, so that commands beside it need no options.
DEV_INFO: Final = Path(".hetuflow", "dev.json")


@dataclass(frozen=True, slots=True)
class ServerConnection:
    """None stands for the client's own default."""

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
    """What was given wins, then the profile that was named, the development system of this folder if it
    runs, and the profile in use.

    A key or token goes to its own address only, never to one that was given.
    """
    if api_key is None and profile is not None and profiles is not None:
        found = fresh(profiles, profile) if fresh else profiles.get(profile)
        return ServerConnection(url or found.url, found.credential if url in {None, found.url} else None)
    if url is not None:
        return ServerConnection(url, api_key)
    dev = read_dev_info(folder)
    if dev is not None:
        return ServerConnection(dev.url, api_key or dev.api_key)
    current = profiles.current if profiles is not None and api_key is None else None
    if profiles is not None and current is not None:
        found = fresh(profiles, current) if fresh else profiles.get(current)
        return ServerConnection(found.url, found.credential)
    return ServerConnection(None, api_key)


def refreshed(
    profiles: Profiles, name: str, *, now: datetime, refresh: Callable[[str, str], LoginAnswer]
) -> Profile:
    """Return a profile whose token is good for a while; one that is about to end is refreshed first."""
    profile = profiles.get(name)
    if not _ending(profile, now):
        return profile
    with profiles.locked():
        profile = profiles.get(name)
        # Another command may have been faster.
        if not _ending(profile, now) or profile.refresh_token is None:
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


def _ending(profile: Profile, now: datetime) -> bool:
    return profile.api_key is None and profile.expires_at is not None and profile.expires_at <= now + SOON


def read_dev_info(folder: Path) -> DevAccess | None:
    """What the development system of this folder says of itself, if it runs."""
    file = folder / DEV_INFO
    try:
        return msgspec.json.decode(file.read_bytes(), type=DevAccess)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise HostBlocked(f"{file} cannot be read ({error.strerror}): give --url and --api-key.") from None
    except (msgspec.DecodeError, UnicodeDecodeError):
        raise HostBlocked(
            f"{file} is not what `hetuflow dev` writes: remove it, or give --url and --api-key."
        ) from None
