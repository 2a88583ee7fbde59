"""Secrets are not seen: not in messages, not in what is shown, not in the representation of anything."""

from __future__ import annotations

import json
import traceback
from pathlib import Path

import pytest

from hetuflow_agent.settings import AgentSettings
from hetuflow_core.errors import ConfigInvalid
from hetuflow_core.runtime.config.loading import HostFacts, SecretText, Settings, load, without_secrets
from hetuflow_core.runtime.config.render import effective_json, effective_toml, validity
from hetuflow_server.settings import ServerSettings

HOST = HostFacts(name="host-1", cpus=4, home=None, is_root=True)
HIDDEN = "hunter2"
GOOD = {
    "HETUFLOW_DATABASE__URL": f"postgresql://u:{HIDDEN}@db/flow",
    "HETUFLOW_SERVER__SECRET_KEY": HIDDEN * 5,
    "HETUFLOW_AGENT__TOKEN": HIDDEN,
}


@pytest.mark.parametrize("settings_type", [ServerSettings, AgentSettings])
def test_loaded_secrets_are_seen_nowhere(settings_type: type[Settings], tmp_path: Path) -> None:
    loaded = load(settings_type, env=GOOD, cwd=tmp_path, host=HOST, system_path=tmp_path / "none")
    everything = [
        repr(loaded),
        str(loaded.settings),
        effective_toml(loaded),
        effective_json(loaded),
        validity(loaded),
        json.dumps(without_secrets(loaded.settings)),
    ]
    for text in everything:
        assert HIDDEN not in text
    assert "********" in effective_toml(loaded)
    assert "********" in effective_json(loaded)


def test_a_secret_shows_itself_only_when_asked() -> None:
    secret = SecretText(HIDDEN)
    assert secret.reveal() == HIDDEN
    assert f"{secret} {secret!r} {secret:>20} {[secret]}".count(HIDDEN) == 0
    assert secret == SecretText(HIDDEN)
    assert hash(secret) == hash(SecretText(HIDDEN))
    assert secret not in (SecretText("other"), HIDDEN)


@pytest.mark.parametrize(
    ("text", "env"),
    [
        (f'[server]\nsecret_key = "{HIDDEN}"', {}),
        (f'[server]\nsecret_key = ["{HIDDEN}"]', {}),
        (f'[server]\nsecret_kye = "{HIDDEN}"', {}),
        (f'[sever]\nsecret_key = "{HIDDEN}"', {}),
        (f'secret_key = "{HIDDEN}"', {}),
        (f'server = "{HIDDEN}"', {}),
        (f'[database]\nurl = "mysql://{HIDDEN}"', {}),
        (f'[database]\nurl = "{HIDDEN}', {}),  # no closing quote
        (f"[database]\nurl = {HIDDEN}", {}),  # no quotes at all
        (f'[server]\nhost = "http://u:{HIDDEN}@host"', {}),
        ("", {"HETUFLOW_SERVER__SECRET_KEY": HIDDEN}),
        ("", {"HETUFLOW_SERVER__SECRET_KEY_FILE": "secret.txt"}),
        ("", {"HETUFLOW_SERVER__SECRET_KEY_FILE": HIDDEN}),  # the secret itself instead of its path
        ("", {"HETUFLOW_SERVER__SECRET_KEY_FIEL": HIDDEN}),
        ("", {"HETUFLOW_SERVER__PORT_FILE": "secret.txt"}),  # a secret's path for another key
        ("", {"HETUFLOW_LOG__LEVEL_FILE": "secret.txt"}),
        ("", {"HETUFLOW_DATABASE__URL": f"u:{HIDDEN}@db/flow"}),
        ("", {"HETUFLOW_DATABASE__URL": f"{HIDDEN}\udcff"}),
    ],
)
def test_refused_secrets_are_not_repeated(text: str, env: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text(HIDDEN, encoding="utf-8")
    (tmp_path / "app.toml").write_text(text, encoding="utf-8")
    with pytest.raises(ConfigInvalid) as refused:
        load(ServerSettings, env=env, cwd=tmp_path, host=HOST)
    error = refused.value
    assert error.faults
    said = [error.message, repr(error), *traceback.format_exception(error), *map(repr, error.faults)]
    assert HIDDEN not in "\n".join(said)
