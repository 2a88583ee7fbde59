"""The loader, on the settings of the server."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hetuflow_core.errors import ConfigInvalid
from hetuflow_core.runtime.config.loading import HostFacts, Loaded, load, load_settings
from hetuflow_server.settings import ServerSettings, StoreSettings

KEY = "k" * 32
REQUIRED = {"HETUFLOW_DATABASE__URL": "postgresql://u:pw@db/flow", "HETUFLOW_SERVER__SECRET_KEY": KEY}
HOST = HostFacts(name="host-1", cpus=4, home=Path("/home/somebody"), is_root=False)

Load = Callable[..., Loaded[ServerSettings]]


@pytest.fixture
def load_here(tmp_path: Path) -> Load:
    def load_(
        text: str | None = None, env: Mapping[str, str] = REQUIRED, **more: Any
    ) -> Loaded[ServerSettings]:
        if text is not None:
            (tmp_path / "app.toml").write_text(text, encoding="utf-8")
        system_path = more.pop("system_path", tmp_path / "etc/app.toml")
        return load(ServerSettings, env=env, cwd=tmp_path, host=HOST, system_path=system_path, **more)

    return load_


def faults_of(attempt: Callable[[], object]) -> dict[str, str]:
    with pytest.raises(ConfigInvalid) as refusal:
        attempt()
    found = {fault.field: fault.message for fault in refusal.value.faults}
    assert len(found) == len(refusal.value.faults)
    return found


def test_defaults(load_here: Load) -> None:
    loaded = load_here()
    settings = loaded.settings
    assert loaded.file is None
    assert (settings.server.host, settings.server.port) == ("127.0.0.1", 8600)
    assert settings.server.advertise_url is None
    assert settings.server.secret_key.reveal() == KEY
    assert settings.leader.ttl == timedelta(seconds=10)
    assert settings.retention.tasks == timedelta(days=30)
    assert settings.log.level == "info"
    assert loaded.origins["server.port"] == "default"


def test_file_is_stronger_than_defaults_and_environment_than_file(load_here: Load) -> None:
    env = REQUIRED | {"HETUFLOW_SERVER__PORT": "9002", "HETUFLOW_LOG__LEVEL": "DEBUG"}
    loaded = load_here('[server]\nport = 9001\nhost = "::1"\n', env)
    assert (loaded.settings.server.host, loaded.settings.server.port) == ("::1", 9002)
    assert loaded.settings.log.level == "debug"
    assert loaded.origins["server.host"] == f"{loaded.file}:3"
    assert loaded.origins["server.port"] == "HETUFLOW_SERVER__PORT"


def test_a_named_file_gives_the_value_without_its_newline(load_here: Load, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY + "-from-file\r\n", encoding="utf-8")
    env = {
        "HETUFLOW_DATABASE__URL": REQUIRED["HETUFLOW_DATABASE__URL"],
        "HETUFLOW_SERVER__SECRET_KEY_FILE": "key",
    }
    loaded = load_here(f'[server]\nsecret_key = "{KEY}-weaker"\n', env)
    assert loaded.settings.server.secret_key.reveal() == KEY + "-from-file"
    assert loaded.origins["server.secret_key"] == "HETUFLOW_SERVER__SECRET_KEY_FILE"


def test_which_file_is_read(load_here: Load, tmp_path: Path) -> None:
    for name, number in (("given", 1), ("variable", 2), ("app", 3), ("system", 4)):
        (tmp_path / f"{name}.toml").write_text(f"[server]\nport = {number}\n", encoding="utf-8")
    system = tmp_path / "system.toml"
    named = REQUIRED | {"HETUFLOW_CONFIG": "variable.toml"}

    def port(env: Mapping[str, str] = REQUIRED, **more: Any) -> int:
        return load_here(None, env, system_path=system, **more).settings.server.port

    assert port(named, config_path="given.toml") == 1
    assert port(named, config_path=tmp_path / "given.toml") == 1
    assert port(named) == 2
    assert port() == 3
    (tmp_path / "app.toml").unlink()
    assert port() == 4
    system.unlink()
    assert port() == 8600


def test_all_faults_are_reported_at_once(load_here: Load, tmp_path: Path) -> None:
    text = """
colour = "red"
port = 1

[server]
prot = 8600
host = 5
stop_timeout = 10
ttl = "3s"

[sever]
port = 1

[leader]
ttl = "1h"

[log]
level = "loud"
"""
    env = {
        "HETUFLOW_DATABASE__POOL_SIZE": "many",
        "HETUFLOW_DATABSE__URL": "x",
        "HETUFLOW_SERVER__SECRET_KEY": "short",
        "HETUFLOW_LOG__LEVEL": "info",
        "HETUFLOW_LOG__FORMAT_FILE": "absent",
    }
    file = tmp_path / "app.toml"
    assert faults_of(lambda: load_here(text, env)) == {
        f"{file}:2 [colour]": "is outside of any section: move it to the section it belongs to",
        f"{file}:3 [port]": "is outside of any section: move it to [server]",
        f"{file}:6 server.prot": "is not a known key: did you mean port?",
        f"{file}:7 server.host": "must be a text in quotes, not 5",
        f"{file}:8 server.stop_timeout": (
            'must be a duration such as "500ms", "30s", "10m", "1h30m" or "2d", not 10'
        ),
        f"{file}:9 server.ttl": "is not a known key: it belongs to [leader]",
        f"{file}:11 [sever]": "is not a known section: did you mean server?",
        f"{file}:15 leader.ttl": 'must be between 1s and 5m, not "1h"',
        f"{file}:18 log.level": 'must be debug, info, warning or error, not "loud"',
        "HETUFLOW_DATABASE__POOL_SIZE": 'must be a whole number, not "many"',
        "HETUFLOW_DATABSE__URL": "is not a known setting: did you mean HETUFLOW_DATABASE__URL?",
        "HETUFLOW_SERVER__SECRET_KEY": "must have at least 32 characters",
        "HETUFLOW_LOG__FORMAT_FILE": 'the file "absent" does not exist: correct the path or create the file',
        "database.url": (
            "is required: set it under [database] in app.toml, or set HETUFLOW_DATABASE__URL "
            "or HETUFLOW_DATABASE__URL_FILE"
        ),
    }


def test_the_summary_names_the_file_and_counts(load_here: Load, tmp_path: Path) -> None:
    with pytest.raises(ConfigInvalid, match=r"app\.toml .* is invalid: correct the 2 faults listed"):
        load_here("a = 1\nb = 1\n")


def test_variables_without_a_double_underscore_are_no_settings(load_here: Load) -> None:
    strangers = {
        "HETUFLOW_URL": "http://x",
        "HETUFLOW_API_KEY": "x",
        "HETUFLOW_TASK_ID": "x",
        "HETUFLOW_TEST_DATABASE_URL": "x",
        "OTHER__KEY": "x",
    }
    assert load_here(None, REQUIRED | strangers).settings.server.port == 8600


def test_key_and_key_file_together_are_refused(load_here: Load, tmp_path: Path) -> None:
    (tmp_path / "key").write_text(KEY, encoding="utf-8")
    env = REQUIRED | {"HETUFLOW_SERVER__SECRET_KEY_FILE": "key"}
    assert faults_of(lambda: load_here(None, env)) == {
        "HETUFLOW_SERVER__SECRET_KEY_FILE": (
            "is set together with HETUFLOW_SERVER__SECRET_KEY: keep one of the two"
        )
    }


def test_a_missing_explicit_file_is_a_fault(load_here: Load, tmp_path: Path) -> None:
    faults = faults_of(lambda: load_here(None, {}, config_path="absent.toml"))
    # Nothing is said about required keys: they most likely stand in the file that could not be read.
    assert faults == {f"{tmp_path}/absent.toml": "does not exist: correct the path or create the file"}


def test_a_directory_is_no_file(load_here: Load, tmp_path: Path) -> None:
    (tmp_path / "app.toml").mkdir()
    assert faults_of(load_here) == {f"{tmp_path}/app.toml": "is a directory: name the file in it"}


@pytest.mark.parametrize("env_key", ["HETUFLOW_LOG__LEVEL_FILE", "HETUFLOW_SERVER__ADVERTISE_URL_FILE"])
def test_a_directory_is_no_value(load_here: Load, tmp_path: Path, env_key: str) -> None:
    (tmp_path / "folder").mkdir()
    (message,) = faults_of(lambda: load_here(None, REQUIRED | {env_key: "folder"})).values()
    assert message == 'the file "folder" is a directory: name the file in it'


def test_an_empty_file_variable_is_a_fault(load_here: Load) -> None:
    (message,) = faults_of(lambda: load_here(None, REQUIRED | {"HETUFLOW_LOG__LEVEL_FILE": ""})).values()
    assert message == "names no file: set it to a path or unset it"


def test_a_file_that_cannot_be_read_says_why(load_here: Load) -> None:
    # Reading unmapped memory fails for every user, root included.
    faults = faults_of(lambda: load_here(None, config_path="/proc/self/mem"))
    assert faults == {"/proc/self/mem": "cannot be read: Input/output error"}


@pytest.mark.skipif(os.geteuid() == 0, reason="root may read every file")
def test_a_closed_file_says_what_to_do(load_here: Load, tmp_path: Path) -> None:
    (tmp_path / "app.toml").touch(mode=0o000)
    (message,) = faults_of(load_here).values()
    assert message == "may not be read by this user: change its owner or mode"


def test_a_file_nested_beyond_reason_is_refused(load_here: Load) -> None:
    (message,) = faults_of(lambda: load_here("a = " + "[" * 100_000)).values()
    assert message == "is not valid TOML: nested too deeply"


def test_a_path_no_file_can_have_is_refused(load_here: Load) -> None:
    env = REQUIRED | {"HETUFLOW_LOG__LEVEL_FILE": "x\0y"}
    (message,) = faults_of(lambda: load_here(None, env)).values()
    assert message == 'the file "x\\u0000y" cannot be read: not a usable path'


def test_bad_toml_is_reported_with_line_and_column(load_here: Load) -> None:
    (message,) = faults_of(lambda: load_here("[server]\nport = = 5\n")).values()
    assert message == "is not valid TOML: Invalid value (at line 2, column 8)"


def test_other_encodings_are_refused(load_here: Load, tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_bytes("[server] # für\n".encode("latin-1"))
    assert faults_of(load_here) == {f"{tmp_path}/app.toml": "is not UTF-8 (at byte 12): save it as UTF-8"}


def test_a_byte_order_mark_does_no_harm(load_here: Load, tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_bytes(b"\xef\xbb\xbf[server]\r\nport = 7\r\n")
    assert load_here().settings.server.port == 7


def test_a_huge_file_is_refused(load_here: Load, tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_bytes(b"#" * (1024 * 1024 + 1))
    assert faults_of(load_here) == {f"{tmp_path}/app.toml": "is larger than 1 MiB: is it the right file?"}


def test_a_key_instead_of_a_section_is_refused(load_here: Load) -> None:
    (message,) = faults_of(lambda: load_here("server = 5\n")).values()
    assert message == "must be a section: write [server] and its keys below it"


def test_a_fault_in_an_overridden_value_is_still_a_fault(load_here: Load, tmp_path: Path) -> None:
    env = REQUIRED | {"HETUFLOW_SERVER__PORT": "9000"}
    faults = faults_of(lambda: load_here("[server]\nport = 99999\n", env))
    assert faults == {f"{tmp_path}/app.toml:2 server.port": "must be between 0 and 65535, not 99999"}


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("server.port = true\n", 1),
        ("[server]\n\n  'port' = true\n", 3),
        ("[ server ]\nport=true\n[leader]\n", 2),
        ('server = { port = true, host = "x" }\n', None),  # the line of a key within a line is not looked for
    ],
)
def test_lines_are_found_or_left_out(load_here: Load, tmp_path: Path, text: str, line: int | None) -> None:
    place = f"{tmp_path}/app.toml:{line}" if line else f"{tmp_path}/app.toml"
    assert faults_of(lambda: load_here(text)) == {f"{place} server.port": "must be a whole number, not true"}


def test_sections_of_the_agent_are_skipped_and_named(load_here: Load) -> None:
    env = REQUIRED | {"HETUFLOW_AGENT__ANYTHING": "x"}
    assert load_here("[agent]\nno_such_key = 1\n").skipped == ("agent",)
    assert load_here("", env).skipped == ("agent",)
    assert load_here("").skipped == ()


def test_an_empty_text_unsets_an_optional_key(load_here: Load) -> None:
    text = '[server]\nadvertise_url = "https://flow.example.com"\n'
    assert load_here(text).settings.server.advertise_url == "https://flow.example.com"
    env = REQUIRED | {"HETUFLOW_SERVER__ADVERTISE_URL": ""}
    assert load_here(text, env).settings.server.advertise_url is None


def test_an_empty_text_is_no_value_otherwise(load_here: Load) -> None:
    env = REQUIRED | {"HETUFLOW_SERVER__HOST": " ", "HETUFLOW_SERVER__PORT": ""}
    assert faults_of(lambda: load_here(None, env)) == {
        "HETUFLOW_SERVER__HOST": "must not be empty",
        "HETUFLOW_SERVER__PORT": 'must be a whole number, not ""',
    }


def test_bytes_that_are_no_text_are_refused(load_here: Load) -> None:
    env = REQUIRED | {"HETUFLOW_SERVER__HOST": os.fsdecode(b"h\xff")}
    (message,) = faults_of(lambda: load_here(None, env)).values()
    assert message == 'must be UTF-8, not "h\\udcff"'
    message.encode()


def test_commands_on_the_database_need_no_secret_key(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text("[server]\nport = 1\n[leader]\n[agent]\n", encoding="utf-8")
    env = {"HETUFLOW_DATABASE__URL": REQUIRED["HETUFLOW_DATABASE__URL"]}
    settings = load_settings(StoreSettings, env=env, cwd=tmp_path, host=HOST)
    assert settings.database.url.reveal() == REQUIRED["HETUFLOW_DATABASE__URL"]


def test_environment_and_directory_default_to_those_of_the_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "app.toml").write_text("[server]\nport = 7\n", encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    for name in [name for name in os.environ if name.startswith("HETUFLOW_")]:
        monkeypatch.delenv(name)
    for name, value in REQUIRED.items():
        monkeypatch.setenv(name, value)
    assert load_settings(ServerSettings).server.port == 7
