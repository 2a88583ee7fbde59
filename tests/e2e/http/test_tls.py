"""A server that answers by https: everybody trusts whom they are told to, and nobody else."""

from __future__ import annotations

import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path
from uuid import uuid4

import httpx
import pytest

from hetuflow_agent.gateway import Gateway, MessageCodec
from hetuflow_agent.gateway.server_clock import ServerClock
from hetuflow_core.client import Hetuflow
from hetuflow_core.errors import HetuflowError, Invalid, ServerUnreachable
from hetuflow_core.messages import Register
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.config.keys import SecretText
from hetuflow_core.runtime.tls import Trust
from tests.e2e.conftest import command_on
from tests.support.http.certificates import Authority, Pair
from tests.support.http.webserver import reply, serving_web
from tests.support.postgres.databases import DatabaseServer
from tests.support.processes.processes import (
    AGENT,
    HETUFLOW,
    Running,
    clean_environment,
    measured_environment,
    run,
)
from tests.support.waiting import wait_until


class Secured:
    """A server that wants certificates of its callers, on a database of its own."""

    def __init__(self, folder: Path, database_url: str) -> None:
        self.authority = Authority(folder / "ours")
        self.server, self.client = self.authority.sign("server", serial=1001), self.authority.sign("client")
        self.database_url = database_url
        self.api_key = command_on(database_url, "key", "create", "--role", "admin", "-q")
        self.agent_token = command_on(database_url, "agent", "token", "create", "-q")
        self.url = ""

    @property
    def trust(self) -> Trust:
        return Trust(self.authority.ca, self.client.cert, self.client.key)

    def environment(self, pair: Pair) -> dict[str, str]:
        return clean_environment(
            HETUFLOW_URL=self.url,
            HETUFLOW_API_KEY=self.api_key,
            HETUFLOW_CA_FILE=str(self.authority.ca),
            HETUFLOW_CLIENT_CERT=str(pair.cert),
            HETUFLOW_CLIENT_KEY=str(pair.key),
        )

    def shown_serial(self) -> int:
        """Of the certificate a new connection is shown."""
        host, port = self.url.removeprefix("https://").split(":")
        context = self.trust.context()
        with (
            socket.create_connection((host, int(port)), timeout=10) as plain,
            context.wrap_socket(plain, server_hostname=host) as connection,
        ):
            found = connection.getpeercert()
        assert found is not None
        return int(str(found["serialNumber"]), 16)


@pytest.fixture(scope="module")
def secured(
    database_server: DatabaseServer, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Secured, Running]]:
    made = Secured(tmp_path_factory.mktemp("tls"), database_server.clone(f"tls_{uuid4().hex[:12]}"))
    environment = measured_environment(
        HETUFLOW_DATABASE__URL=made.database_url,
        HETUFLOW_SERVER__SECRET_KEY="s" * 48,
        HETUFLOW_SERVER__PORT="0",
        HETUFLOW_SERVER__TLS_CERT=str(made.server.cert),
        HETUFLOW_SERVER__TLS_KEY=str(made.server.key),
        HETUFLOW_SERVER__TLS_CLIENT_CA=str(made.authority.ca),
    )
    with Running([*HETUFLOW, "server"], env=environment) as server:
        made.url = server.await_log("listening")["url"]
        yield made, server


def test_an_agent_runs_work_of_an_encrypted_server(secured: tuple[Secured, Running], tmp_path: Path) -> None:
    made, _ = secured
    assert made.url.startswith("https://")
    environment = clean_environment(
        HETUFLOW_AGENT__SERVER_URL=made.url,
        HETUFLOW_AGENT__TOKEN=made.agent_token,
        HETUFLOW_AGENT__NAME="secured",
        HETUFLOW_AGENT__DATA_DIR=str(tmp_path / "data"),
        HETUFLOW_AGENT__SERVER_CA=str(made.authority.ca),
        HETUFLOW_AGENT__CLIENT_CERT=str(made.client.cert),
        HETUFLOW_AGENT__CLIENT_KEY=str(made.client.key),
    )
    with Hetuflow(made.url, made.api_key, trust=made.trust) as client, Running(AGENT, env=environment):
        client.apply([{"kind": "job", "name": "secured", "run": {"command": ["true"]}}])
        task = client.run(client.job("default", "secured").id)
        assert client.wait(task.id, timeout=60).status == "succeeded"
    listed = run([*HETUFLOW, "job", "list", "-q"], env=made.environment(made.client))
    assert (listed.returncode, listed.stdout.strip()) == (0, "secured"), listed.stderr


def _trusting(made: Secured, pair: Pair) -> Trust:
    return Trust(made.authority.ca, pair.cert, pair.key)


def test_nobody_is_trusted_who_was_not_named(secured: tuple[Secured, Running], tmp_path: Path) -> None:
    made, _ = secured
    stranger = Authority(tmp_path / "theirs", "stranger")
    for trust in (
        Trust(),  # the host's own authorities did not sign it
        Trust(stranger.ca, made.client.cert, made.client.key),
        Trust(made.authority.ca),  # no certificate to show
        _trusting(made, stranger.sign("client")),
    ):
        with Hetuflow(made.url, made.api_key, trust=trust) as client, pytest.raises(ServerUnreachable):
            client.info()
    other = made.authority.sign("elsewhere", host="192.0.2.1")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(other.cert, other.key)
    with serving_web({"/api/v1/system/info": reply(200, b"{}")}, tls=context) as web:
        url = web.url.replace("http:", "https:")
        with Hetuflow(url, made.api_key, trust=made.trust) as client, pytest.raises(ServerUnreachable):
            client.info()
    assert web.asked == []


def test_a_new_certificate_takes_over_on_sighup_and_a_bad_one_does_not(
    secured: tuple[Secured, Running],
) -> None:
    made, server = secured
    assert made.shown_serial() == 1001
    good_key = made.server.key.read_bytes()
    made.server.key.write_bytes(b"not a key")
    server.signal(signal.SIGHUP)
    server.await_log("The new certificate cannot be used; the former one stays.")
    assert made.shown_serial() == 1001
    made.server.key.write_bytes(good_key)
    made.authority.sign("server", serial=2002)
    server.signal(signal.SIGHUP)
    wait_until(lambda: made.shown_serial() == 2002, timeout=30, what="the new certificate")


async def test_a_redirect_takes_no_token_to_another_host() -> None:
    with serving_web({}) as elsewhere:
        target = f"{elsewhere.url}/api/v1/gateway/register"
        moved = {
            "/api/v1/gateway/register": reply(307, Location=target),
            "/api/v1/system/info": reply(308, Location=target),
        }
        with serving_web(moved) as web:
            clock = SystemClock()
            gateway = Gateway(
                MessageCodec(web.url, SecretText("ha_x_y"), clock, ServerClock(clock), lambda _: None)
            )
            await gateway.start()
            with pytest.raises(Invalid, match="points to"):
                await gateway.register(Register("a", uuid4(), "1", ["default"], 1))
            await gateway.stop()
            with Hetuflow(web.url, "hk_x_y") as client, pytest.raises(HetuflowError):
                client.info()
    assert len(web.asked) == 2
    assert elsewhere.asked == []


def test_a_certificate_needs_its_key(tmp_path: Path) -> None:
    pair = Authority(tmp_path).sign("server")
    environment = clean_environment(
        HETUFLOW_DATABASE__URL="postgresql://nobody@127.0.0.1:1/x",
        HETUFLOW_SERVER__SECRET_KEY="s" * 48,
        HETUFLOW_SERVER__TLS_CERT=str(pair.cert),
    )
    refused = run([*HETUFLOW, "server"], env=environment)
    assert refused.returncode != 0
    assert "server.tls_key: is required with tls_cert" in refused.stderr + refused.stdout


@pytest.mark.parametrize("content", [b"", b"not a certificate"])
def test_files_that_cannot_be_used_are_named(tmp_path: Path, content: bytes) -> None:
    file = tmp_path / "ca.crt"
    file.write_bytes(content)
    with pytest.raises(HetuflowError, match=str(file)):
        Trust(file).context()
    with pytest.raises(HetuflowError, match=str(file)):
        Trust(None, file).context()


def test_httpx_follows_no_redirect_by_itself() -> None:
    """What the clients rely on, should they forget to say so."""
    assert httpx.Client().follow_redirects is False
