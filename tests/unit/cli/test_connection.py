"""Which server a command finds, and which database."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from hetuflow_core.errors import ConfigInvalid, HostBlocked
from hetuflow_server.cli.connection import ServerConnection, find_connection
from hetuflow_server.cli.database import find_database

DATABASE = "postgresql://me:secret@127.0.0.1:4712/dev"
DEV = {"url": "http://127.0.0.1:4711", "api_key": "dev-key", "database_url": DATABASE, "pids": {}}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / ".hetuflow").mkdir()
    (tmp_path / ".hetuflow" / "dev.json").write_text(json.dumps(DEV))
    return tmp_path


def test_the_development_system_of_the_folder_is_found(folder: Path) -> None:
    assert find_connection(None, None, folder=folder) == ServerConnection(DEV["url"], "dev-key")  # type: ignore[arg-type]  # a str


def test_a_key_that_was_given_wins(folder: Path) -> None:
    assert find_connection(None, "mine", folder=folder).api_key == "mine"


def test_its_key_goes_nowhere_else(folder: Path) -> None:
    assert find_connection("http://other", None, folder=folder) == ServerConnection("http://other", None)


def test_without_one_the_client_decides(tmp_path: Path) -> None:
    assert find_connection(None, "mine", folder=tmp_path) == ServerConnection(None, "mine")
    (tmp_path / ".hetuflow").touch()
    assert find_connection(None, None, folder=tmp_path) == ServerConnection(None, None)


@pytest.mark.parametrize("content", [b"", b"{", b"[]", b'{"url": 1}', b'{"url": "\xff"}'])
def test_a_file_of_something_else_is_told_of(folder: Path, content: bytes) -> None:
    (folder / ".hetuflow" / "dev.json").write_bytes(content)
    with pytest.raises(HostBlocked, match=r"dev\.json"):
        find_connection(None, None, folder=folder)
    assert find_connection("http://other", None, folder=folder).url == "http://other"


def test_the_key_is_not_in_its_repr() -> None:
    assert "secret" not in repr(ServerConnection("http://x", "secret"))


def test_the_database_of_the_development_system_is_found_unless_one_is_set(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    monkeypatch.delenv("HETUFLOW_DATABASE__URL", raising=False)
    assert find_database(None, folder=folder).database.url.reveal() == DATABASE
    (folder / "app.toml").write_text('[database]\nurl = "postgresql://elsewhere/hetuflow"\n')
    assert find_database(None, folder=folder).database.url.reveal() == "postgresql://elsewhere/hetuflow"
    (folder / "app.toml").write_text('[database]\nurl = "mysql://elsewhere"\n')
    with pytest.raises(ConfigInvalid):
        find_database(None, folder=folder)


def test_without_a_development_system_the_database_has_to_be_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("HETUFLOW_DATABASE__URL", raising=False)
    with pytest.raises(ConfigInvalid):
        find_database(None, folder=tmp_path)
