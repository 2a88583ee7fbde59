"""The settings both sides declare: documented, consistent with each other, and true to their rules."""

from __future__ import annotations

import re
import runpy
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import get_args

import pytest

from hetuflow_agent.settings import AgentSettings
from hetuflow_core.errors import ConfigInvalid
from hetuflow_core.runtime.config.keys import KeyKind, KeySpec, sections_of
from hetuflow_core.runtime.config.loading import HostFacts, Settings, load, without_secrets
from hetuflow_core.runtime.config.render import template
from hetuflow_core.runtime.logging import LogFormat, LogLevel
from hetuflow_server.settings import ServerSettings, StoreSettings

ROOT = Path(__file__).resolve().parents[3]
HOST = HostFacts(name="host-1", cpus=4, home=Path("/home/somebody"), is_root=False)
NOWHERE = Path("/nonexistent")
DATABASE = "postgresql://u:pw@db/flow"
KEY = "k" * 32
EVERY: list[type[Settings]] = [ServerSettings, StoreSettings, AgentSettings]


def every_key() -> list[KeySpec]:
    return [
        spec for settings_type in EVERY for section in sections_of(settings_type) for spec in section.keys
    ]


def server(env: dict[str, str]) -> ServerSettings:
    required = {"HETUFLOW_DATABASE__URL": DATABASE, "HETUFLOW_SERVER__SECRET_KEY": KEY}
    return load(ServerSettings, env=required | env, cwd=NOWHERE, host=HOST, system_path=NOWHERE).settings


def agent(env: dict[str, str], host: HostFacts = HOST) -> AgentSettings:
    required = {"HETUFLOW_AGENT__TOKEN": "token"}
    return load(AgentSettings, env=required | env, cwd=NOWHERE, host=host, system_path=NOWHERE).settings


def refusals(load_with: Callable[..., Settings], env: dict[str, str], **more: HostFacts) -> dict[str, str]:
    with pytest.raises(ConfigInvalid) as refused:
        load_with(env, **more)
    return {fault.field: fault.message for fault in refused.value.faults}


@pytest.mark.parametrize("spec", every_key(), ids=lambda spec: spec.path)
def test_every_key_is_documented(spec: KeySpec) -> None:
    assert re.fullmatch(r"[A-Z`].{10,}[.]", spec.key.doc), "a documentation is at least one whole sentence"
    assert spec.default is not None or spec.key.example is not None, "the template shows a value for each"
    # HETUFLOW_X__Y_FILE must mean the file of y, and a section's name ends at the first double underscore.
    assert re.fullmatch(r"[a-z]+\.[a-z]+(_[a-z]+)*", spec.path)
    assert not spec.name.endswith("_file")


@pytest.mark.parametrize("settings_type", EVERY)
def test_every_section_is_introduced(settings_type: type[Settings]) -> None:
    for section in sections_of(settings_type):
        assert section.doc.endswith(".")
        assert not section.doc.startswith(section.type.__name__), "a docstring of its own"


def test_each_side_knows_the_sections_of_the_other() -> None:
    server_sections = {section.name for section in sections_of(ServerSettings)}
    agent_sections = {section.name for section in sections_of(AgentSettings)}
    assert set(ServerSettings.foreign_sections) == agent_sections - server_sections
    assert set(AgentSettings.foreign_sections) == server_sections - agent_sections
    store_sections = {section.name for section in sections_of(StoreSettings)}
    assert set(StoreSettings.foreign_sections) == (server_sections | agent_sections) - store_sections


def test_what_the_log_section_accepts_is_what_logging_knows() -> None:
    choices = {spec.name: spec.choices for spec in every_key() if spec.section == "log" and spec.choices}
    assert choices == {"level": get_args(LogLevel), "format": get_args(LogFormat)}


def test_the_variables_other_programs_rely_on() -> None:
    variables = {spec.env: spec.secret for spec in every_key()}
    promised = [
        "DATABASE__URL",
        "SERVER__HOST",
        "SERVER__PORT",
        "SERVER__SECRET_KEY",
        "LEADER__TTL",
        "AGENT__NAME",
        "AGENT__SERVER_URL",
        "AGENT__TOKEN",
        "AGENT__DATA_DIR",
        "AGENT__NAMESPACES",
        "AGENT__SLOTS",
        "AGENT__LABELS",
    ]
    assert {f"HETUFLOW_{name}" for name in promised} <= set(variables)
    assert {name for name, secret in variables.items() if secret} == {
        "HETUFLOW_DATABASE__URL",
        "HETUFLOW_SERVER__SECRET_KEY",
        "HETUFLOW_OIDC__CLIENT_SECRET",
        "HETUFLOW_AGENT__TOKEN",
    }


@pytest.mark.parametrize("name", ["app.toml", "docs/reference/configuration.md"])
def test_generated_files_are_up_to_date(name: str) -> None:
    generated = runpy.run_path(str(ROOT / "docs/generate.py"))["generated"]()
    committed = (ROOT / name).read_text(encoding="utf-8")
    assert committed == generated[name], "run `python docs/generate.py`"


def test_the_template_as_it_is_gives_the_defaults(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text(template(EVERY), encoding="utf-8")
    env = {"HETUFLOW_DATABASE__URL": DATABASE, "HETUFLOW_SERVER__SECRET_KEY": KEY}
    assert load(ServerSettings, env=env, cwd=tmp_path, host=HOST).settings == server({})
    env = {"HETUFLOW_AGENT__TOKEN": "token"}
    assert load(AgentSettings, env=env, cwd=tmp_path, host=HOST).settings == agent({})


@pytest.mark.parametrize("settings_type", [ServerSettings, AgentSettings])
def test_every_line_of_the_template_may_be_uncommented(settings_type: type[Settings], tmp_path: Path) -> None:
    uncommented, count = re.subn(r"(?m)^#(?=\w)", "", template(EVERY))
    assert count == len({spec.path for spec in every_key()})
    uncommented = uncommented.replace('"CHANGE-ME"', f'"{KEY}"')
    (tmp_path / "app.toml").write_text(uncommented, encoding="utf-8")
    loaded = load(settings_type, env={}, cwd=tmp_path, host=HOST)
    shown = without_secrets(loaded.settings)
    for section in sections_of(settings_type):
        for spec in section.keys:
            assert loaded.origins[spec.path].startswith(f"{tmp_path}/app.toml:")
            if spec.key.example is None and spec.kind not in {KeyKind.LIST, KeyKind.DURATION}:
                assert shown[section.name][spec.name] == spec.default


def test_the_placeholder_of_the_template_is_no_secret_key(tmp_path: Path) -> None:
    (tmp_path / "app.toml").write_text(re.sub(r"(?m)^#(?=\w)", "", template(EVERY)), encoding="utf-8")
    with pytest.raises(ConfigInvalid) as refused:
        load(ServerSettings, env={}, cwd=tmp_path, host=HOST)
    (fault,) = refused.value.faults
    assert fault.field.endswith("server.secret_key")


@pytest.mark.parametrize(
    ("env", "ttl", "renew", "give_up"),
    [
        ({}, 10, 2.5, 6),
        ({"HETUFLOW_LEADER__TTL": "4s"}, 4, 1, 2.4),
        ({"HETUFLOW_LEADER__TTL": "4s", "HETUFLOW_LEADER__RENEW_EVERY": "500ms"}, 4, 0.5, 2.4),
        ({"HETUFLOW_LEADER__GIVE_UP_AFTER": "9s"}, 10, 2.5, 9),
    ],
)
def test_leader_times_follow_from_ttl(env: dict[str, str], ttl: float, renew: float, give_up: float) -> None:
    leader = server(env).leader
    assert leader.ttl == timedelta(seconds=ttl)
    assert leader.renew_every == timedelta(seconds=renew)
    assert leader.give_up_after == timedelta(seconds=give_up)


@pytest.mark.parametrize(
    ("env", "field", "message"),
    [
        (
            {"GIVE_UP_AFTER": "10s"},
            "HETUFLOW_LEADER__GIVE_UP_AFTER",
            "must be shorter than ttl: it is 10s and ttl is 10s",
        ),
        (
            {"RENEW_EVERY": "7s"},
            "HETUFLOW_LEADER__RENEW_EVERY",
            "must be shorter than give_up_after: it is 7s and give_up_after is 6s",
        ),
        (
            {"GIVE_UP_AFTER": "2s"},
            "leader.renew_every",
            "must be shorter than give_up_after: it is 2.5s and give_up_after is 2s",
        ),
    ],
)
def test_leader_times_in_the_wrong_order_are_refused(env: dict[str, str], field: str, message: str) -> None:
    given = {f"HETUFLOW_LEADER__{name}": value for name, value in env.items()}
    assert refusals(server, given) == {field: message}


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://u:pw@db:5432/flow",
        "postgres://u:pw@db/flow",
        "postgresql+psycopg://u:pw@db/flow?sslmode=require",
        "postgresql:///flow?host=/run/postgresql",
        "postgresql://u@[::1]:5432/flow",
        "postgresql://u@one:5432,two:5433/flow",
        "postgresql://",
    ],
)
def test_usable_database_addresses(url: str) -> None:
    assert server({"HETUFLOW_DATABASE__URL": url}).database.url.reveal() == url


@pytest.mark.parametrize(
    ("url", "complaint"),
    [
        ("mysql://u:hunter2@db/flow", "must be of the form"),
        ("host=db password=hunter2", "must be of the form"),
        ("hunter2", "must be of the form"),
        ("postgresql://u:hunter2@db/a b", "must not contain spaces"),
        ("postgresql://u:hunter2@db:http/flow", "has a port"),
        ("postgresql://u:hunter2@db:99999/flow", "has a port"),
        ("postgresql://u:hunter2/x@db/flow", "has a port"),
        ("postgresql://u:hunter2@[::1/flow", "has a host"),
    ],
)
def test_unusable_database_addresses_are_refused_without_repeating_them(url: str, complaint: str) -> None:
    found = refusals(server, {"HETUFLOW_DATABASE__URL": url})
    assert set(found) == {"HETUFLOW_DATABASE__URL"}
    assert found["HETUFLOW_DATABASE__URL"].startswith(complaint)
    assert "hunter2" not in str(found)


@pytest.mark.parametrize(
    "url",
    [
        "flow.example.com",
        "ftp://flow.example.com",
        "http://",
        "http://host:port",
        "http://host:0",
        "http://host:70000",
        "http://[::1",
        "http://u:hunter2@host",
        "http://host?x=1",
        "http://host/#x",
        "http://ho st",
        "http://host\n",
    ],
)
def test_unusable_http_addresses_are_refused_without_repeating_them(url: str) -> None:
    for found in (
        refusals(server, {"HETUFLOW_SERVER__ADVERTISE_URL": url}),
        refusals(agent, {"HETUFLOW_AGENT__SERVER_URL": url}),
    ):
        (message,) = found.values()
        assert message.startswith("must ")
        assert "hunter2" not in message


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HETUFLOW_SERVER__HOST", "http://localhost"),
        ("HETUFLOW_SERVER__PORT", "65536"),
        ("HETUFLOW_SERVER__PORT", "-1"),
        ("HETUFLOW_DATABASE__CONNECT_TIMEOUT", "2500ms"),
        ("HETUFLOW_DATABASE__CONNECT_TIMEOUT", "1s"),
        ("HETUFLOW_DATABASE__POOL_SIZE", "1"),
        ("HETUFLOW_DATABASE__STATEMENT_TIMEOUT", "0s"),
        ("HETUFLOW_RETENTION__TASKS", "1m"),
        ("HETUFLOW_RETENTION__PARTITION_AHEAD", "1h"),
        ("HETUFLOW_SERVER__STOP_TIMEOUT", "1d"),
    ],
)
def test_values_the_server_refuses(name: str, value: str) -> None:
    assert set(refusals(server, {name: value})) == {name}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HETUFLOW_AGENT__NAME", "my host"),
        ("HETUFLOW_AGENT__NAME", "x" * 129),
        ("HETUFLOW_AGENT__NAMESPACES", ""),
        ("HETUFLOW_AGENT__NAMESPACES", "a,a"),
        ("HETUFLOW_AGENT__NAMESPACES", "a,-b"),
        ("HETUFLOW_AGENT__SLOTS", "0"),
        ("HETUFLOW_AGENT__SLOTS", "10001"),
        ("HETUFLOW_AGENT__TOKEN", "two words"),
    ],
)
def test_values_the_agent_refuses(name: str, value: str) -> None:
    assert set(refusals(agent, {name: value})) == {name}


def test_defaults_of_the_agent_follow_from_the_host() -> None:
    settings = agent({}).agent
    assert (settings.name, settings.slots) == ("host-1", 8)
    assert settings.data_dir == Path("/home/somebody/.local/share/hetuflow-agent")
    assert settings.namespaces == ("default",)
    assert settings.labels == {}

    for host in (
        HostFacts(name="h", cpus=9000, home=Path("/root"), is_root=True),
        HostFacts(name="h", cpus=9000, home=None, is_root=False),
    ):
        settings = agent({}, host).agent
        assert settings.data_dir == Path("/var/lib/hetuflow-agent")
        assert settings.slots == 10_000


def test_a_host_whose_name_does_not_fit_needs_a_name_for_its_agent() -> None:
    odd = HostFacts(name="odd host", cpus=1, home=None, is_root=True)
    (message,) = refusals(agent, {}, host=odd).values()
    assert message.endswith('but its default is "odd host": set it')
    assert agent({"HETUFLOW_AGENT__NAME": "fine"}, odd).agent.name == "fine"


def test_the_host_itself_can_be_asked() -> None:
    here = HostFacts.here({"HOME": "/somewhere"})
    assert here.name
    assert here.cpus >= 1
    assert here.home == Path("/somewhere")
    assert HostFacts.here({}).home is None
