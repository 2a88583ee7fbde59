"""Profiles: kept for their owner alone, refreshed in time, and sent to nobody else."""

from __future__ import annotations

import stat
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from hetuflow_core.errors import HostBlocked, NotFound
from hetuflow_core.resources.identity import LoginAnswer
from hetuflow_server.cli.connection import ServerConnection, find_connection, logged_in, refreshed
from hetuflow_server.cli.profiles import Profile, Profiles

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
WORK = Profile("https://work", user="ann", access_token="a1", refresh_token="r1", expires_at=NOW)
BOT = Profile("https://bot", api_key="hk_x_y")


@pytest.fixture
def profiles(tmp_path: Path) -> Profiles:
    kept = Profiles.of_user({"HOME": str(tmp_path)})
    kept.put("work", WORK, use=True)
    kept.put("bot", BOT, use=False)
    return kept


def answer(_: str, token: str) -> LoginAnswer:
    assert token == "r1"
    return LoginAnswer("ann", "a2", 900, "r2")


def never(*_: str) -> LoginAnswer:
    raise AssertionError("nothing was to be refreshed")


def test_only_their_owner_can_read_them(profiles: Profiles) -> None:
    assert stat.S_IMODE(profiles.path.stat().st_mode) == 0o600
    assert stat.S_IMODE(profiles.path.parent.stat().st_mode) == 0o700
    assert "a1" not in repr(WORK)
    assert "hk_x_y" not in repr(BOT)


def test_they_are_used_renamed_and_forgotten(profiles: Profiles) -> None:
    assert profiles.current == "work"
    profiles.use("bot")
    assert profiles.current == "bot"
    profiles.remove("bot")
    assert (profiles.current, list(profiles.all())) == (None, ["work"])
    with pytest.raises(NotFound, match="hetuflow login --profile nobody"):
        profiles.use("nobody")


def test_a_file_of_something_else_is_told_of(profiles: Profiles) -> None:
    profiles.path.write_text('{"profiles": 1}')
    with pytest.raises(HostBlocked, match=r"profiles\.json"):
        profiles.all()


@pytest.mark.parametrize(
    ("url", "key", "profile", "found"),
    [
        (None, None, None, ServerConnection("https://work", "a1")),
        (None, None, "bot", ServerConnection("https://bot", "hk_x_y")),
        ("https://bot", None, "bot", ServerConnection("https://bot", "hk_x_y")),
        ("https://evil", None, "bot", ServerConnection("https://evil", None)),
        ("https://evil", None, None, ServerConnection("https://evil", None)),
        (None, "given", None, ServerConnection(None, "given")),
        (None, "given", "bot", ServerConnection(None, "given")),
    ],
)
def test_which_server_a_command_finds(
    profiles: Profiles,
    tmp_path: Path,
    url: str | None,
    key: str | None,
    profile: str | None,
    found: ServerConnection,
) -> None:
    assert find_connection(url, key, folder=tmp_path, profiles=profiles, profile=profile) == found


def test_a_token_about_to_end_is_refreshed_once_and_kept(profiles: Profiles) -> None:
    early = NOW - timedelta(minutes=5)
    assert refreshed(profiles, "work", now=early, refresh=never) == WORK
    fresh = refreshed(profiles, "work", now=NOW, refresh=answer)
    assert fresh == logged_in("https://work", LoginAnswer("ann", "a2", 900, "r2"), NOW)
    assert fresh.expires_at == NOW + timedelta(minutes=15)
    assert refreshed(profiles, "work", now=NOW, refresh=never) == fresh
    assert profiles.current == "work"
    assert refreshed(profiles, "bot", now=NOW, refresh=never) == BOT
