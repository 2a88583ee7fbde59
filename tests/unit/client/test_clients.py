"""The two clients: the same calls, the same errors, no key in sight."""

from __future__ import annotations

import asyncio
import inspect
import socket
import traceback
from collections.abc import Iterator

import pytest

from hetuflow_core.client import AsyncHetuflow, Hetuflow
from hetuflow_core.client.endpoint import Endpoint, checked_url
from hetuflow_core.errors import ConfigInvalid, ServerUnreachable

KEY = "hfk_0123456789abcdef"


@pytest.fixture
def silent_url() -> Iterator[str]:
    """An address of our own where nobody listens, so that no other process can take it meanwhile."""
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{taken.getsockname()[1]}"


def operations_of(client: type) -> dict[str, inspect.Signature]:
    return {
        name: inspect.signature(value)
        for name, value in vars(client).items()
        if callable(value) and not name.startswith("_")
    }


def test_both_clients_have_the_same_calls() -> None:
    assert operations_of(Hetuflow) == operations_of(AsyncHetuflow)
    assert {"apply", "run", "follow_logs"} <= operations_of(Hetuflow).keys()


def test_help_shows_parameters_and_purpose() -> None:
    with Hetuflow() as client:
        assert list(inspect.signature(client.job).parameters) == ["namespace", "name"]
    assert "NotFound" in (inspect.getdoc(Hetuflow.job) or "")


def test_a_server_that_is_not_there(silent_url: str) -> None:
    with (
        Hetuflow(silent_url, KEY, draw=lambda: 0.0) as client,
        pytest.raises(ServerUnreachable, match="connection refused") as caught,
    ):
        client.info()
    assert silent_url in str(caught.value)
    with Hetuflow(silent_url, KEY) as client, pytest.raises(ServerUnreachable):
        list(client.follow_logs("x"))


async def test_a_server_that_is_not_there_on_asyncio(silent_url: str) -> None:
    async with AsyncHetuflow(silent_url, KEY, draw=lambda: 0.0) as client:
        # httpx words it differently here: all connection attempts failed.
        with pytest.raises(ServerUnreachable, match="No Hetuflow server answers"):
            await client.info()
        with pytest.raises(ServerUnreachable):
            _ = [item async for item in client.follow_logs("x")]


def test_a_proxy_is_not_asked_for_our_own_machine(silent_url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HTTP_PROXY", "http://proxy.invalid:1")
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    with (
        Hetuflow(silent_url, draw=lambda: 0.0) as client,
        pytest.raises(ServerUnreachable, match="connection refused"),
    ):
        client.info()


def test_the_key_is_nowhere_to_be_seen(silent_url: str) -> None:
    client = Hetuflow(silent_url, KEY, draw=lambda: 0.0)
    shown = [repr(client), str(client), repr(vars(client)), repr(client._http.headers)]
    with client, pytest.raises(ServerUnreachable) as caught:
        client.info()
    shown.append(
        "".join(traceback.TracebackException.from_exception(caught.value, capture_locals=True).format())
    )
    assert not [text for text in shown if KEY in text]


def test_address_and_key_come_from_the_environment() -> None:
    env = {"HETUFLOW_URL": "https://flow.example/base/", "HETUFLOW_API_KEY": f"{KEY}\n"}
    assert Endpoint.resolve(None, None, env) == Endpoint("https://flow.example/base", KEY)
    assert Endpoint.resolve("http://other", "mine", env) == Endpoint("http://other", "mine")
    empty = {"HETUFLOW_URL": "", "HETUFLOW_API_KEY": ""}
    assert Endpoint.resolve(None, None, empty) == Endpoint("http://127.0.0.1:8600", None)


@pytest.mark.parametrize(
    "url",
    [
        "localhost:8600",
        "ftp://host",
        "http://",
        "http://host:notaport",
        "http://host:0",
        "http://host:99999",
        "http://[::1",
        "http://host/?a=b",
        "http://host/a b",
        "http://user:secret@host",
    ],
)
def test_an_address_nobody_can_be_reached_at_is_told_at_once(url: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        checked_url(url)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("key", ["pässword", "two words", "line\nbreak", " "])
def test_a_key_that_no_header_can_carry_is_refused_unseen(key: str) -> None:
    with pytest.raises(ConfigInvalid) as caught:
        Hetuflow("http://host", key)
    assert key not in str(caught.value) or key == " "


def test_an_iteration_can_be_left_half_way(silent_url: str) -> None:
    with Hetuflow(silent_url) as client:
        client.jobs().close()
    asyncio.run(_left_half_way(silent_url))


async def _left_half_way(url: str) -> None:
    async with AsyncHetuflow(url) as client:
        await client.jobs().aclose()
