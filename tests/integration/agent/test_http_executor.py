"""The http executor against real servers on this host."""

from __future__ import annotations

import asyncio
import shutil
import ssl
import subprocess
import threading
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from hetuflow_agent.executors import http
from hetuflow_agent.executors.http import LOGGED_BYTES, HttpExecutor, look_up
from hetuflow_agent.executors.interface import Execution
from hetuflow_agent.folders.workdir import ClaimDirectory
from hetuflow_agent.processes.command import Exit
from hetuflow_core.errors import Invalid
from tests.support.agent.executors import assignment_for, claim_directory, executor_host
from tests.support.http.webserver import reply, serving_web

LOCAL = ("127.0.0.1/32",)


@pytest.fixture
def directory(tmp_path: Path) -> ClaimDirectory:
    return claim_directory(tmp_path)


async def begin(
    directory: ClaimDirectory, options: dict[str, Any], *, allow: tuple[str, ...] = LOCAL, **parts: Any
) -> Execution:
    executor = HttpExecutor(executor_host(directory.root, http_allow=allow), **parts)
    assignment = assignment_for("http", options)
    executor.check(assignment.run)
    return await executor.start(assignment, directory, {})


async def perform(directory: ClaimDirectory, options: dict[str, Any], **parts: Any) -> Exit:
    execution = await begin(directory, options, **parts)
    async with asyncio.timeout(30):
        end = await execution.wait()
    execution.close()
    assert end.no_process_left, "its folder may be used again"
    return end


def output(directory: ClaimDirectory) -> dict[str, Any]:
    return msgspec.json.decode(directory.output.read_bytes(), type=dict[str, Any])


def text(directory: ClaimDirectory, stream: str) -> str:
    return directory.stream(stream).read_text()


async def test_an_answer_becomes_log_and_output(directory: ClaimDirectory) -> None:
    routes = {"/report?day=1": reply(200, b'{"rows": 3}', content_type="application/json")}
    with serving_web(routes) as web:
        options = {
            "url": f"{web.url}/report?day=1",
            "method": "POST",
            "headers": {"Authorization": "Bearer abc"},
            "json": {"who": ["me", 1]},
        }
        assert await perform(directory, options) == Exit(exit_code=0)
    (asked,) = web.asked
    assert (asked.method, asked.body) == ("POST", b'{"who":["me",1]}')
    assert asked.headers["host"] == f"127.0.0.1:{web.port}"
    assert asked.headers["authorization"] == "Bearer abc"
    assert asked.headers["content-type"] == "application/json"
    assert asked.headers["x-hetuflow-attempt"] == "2"
    assert output(directory)["status"] == 200
    assert output(directory)["body"] == {"rows": 3}
    assert text(directory, "stdout") == '{"rows": 3}'
    assert "< 200 OK" in text(directory, "stderr")
    assert "abc" not in text(directory, "stderr")


async def test_a_text_is_sent_as_it_is(directory: ClaimDirectory) -> None:
    with serving_web({"/in": reply(201, b"taken")}) as web:
        await perform(directory, {"url": f"{web.url}/in", "method": "PUT", "body": "a=1\r\n"})
    assert web.asked[0].body == b"a=1\r\n"
    assert output(directory)["body"] == "taken"


@pytest.mark.parametrize(
    ("status", "expected", "reason"),
    [
        (204, ["2xx"], None),
        (404, ["2xx"], "http_status"),
        (404, ["404", "2xx"], None),
        (200, ["404"], "http_status"),
        (503, ["2xx"], "http_status"),
    ],
)
async def test_the_status_decides(
    directory: ClaimDirectory, status: int, expected: list[str], reason: str | None
) -> None:
    with serving_web({"/": reply(status)}) as web:
        end = await perform(directory, {"url": f"{web.url}/", "expected_status": expected})
    assert (end.reason, end.exit_code) == (reason, 0 if reason is None else None)
    assert f"< {status} " in text(directory, "stderr")


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "2130706433", "[::1]", "0.0.0.0", "169.254.169.254"]
)
async def test_what_is_not_public_is_refused_unless_allowed(directory: ClaimDirectory, host: str) -> None:
    with serving_web({"/": reply(200)}) as web:
        end = await perform(directory, {"url": f"http://{host}:{web.port}/"}, allow=())
    assert (end.exit_code, end.reason) == (None, "http_address_refused")
    assert "agent.http_allow" in str(end.message)
    assert web.asked == []


async def test_redirects_are_followed_and_judged_anew(directory: ClaimDirectory) -> None:
    """An allowed host that points to one that is not: the second is never connected to."""
    with serving_web({"/secret": reply(200, b"metadata")}) as inside:
        away = reply(302, Location=f"http://[::1]:{inside.port}/secret")
        with serving_web(
            {"/": away, "/here": reply(200, b"moved"), "/old": reply(301, Location="/here")}
        ) as web:
            refused = await perform(directory, {"url": f"{web.url}/"})
            followed = await perform(directory, {"url": f"{web.url}/old"})
    assert refused.reason == "http_address_refused"
    assert inside.asked == []
    assert followed.exit_code == 0
    assert text(directory, "stdout") == "moved"


async def test_a_redirect_to_another_origin_loses_the_credentials(directory: ClaimDirectory) -> None:
    with serving_web({"/there": reply(200)}) as other:
        moved = reply(307, Location=f"{other.url}/there")
        with serving_web({"/": moved, "/see": reply(303, Location="/done"), "/done": reply(200)}) as web:
            options = {
                "method": "POST",
                "body": "x",
                "headers": {
                    "Authorization": "Bearer abc",
                    "X-Kept": "1",
                    "X-Key": "s",
                    "Content-Type": "text/plain",
                },
                # Of secrets, whatever they are called.
                "private_headers": ["X-Key"],
            }
            await perform(directory, {**options, "url": f"{web.url}/"})
            await perform(directory, {**options, "url": f"{web.url}/see"})
    (asked,) = other.asked
    assert (asked.method, asked.body) == ("POST", b"x")
    assert not {"authorization", "x-key"} & asked.headers.keys()
    assert asked.headers["x-kept"] == "1"
    seen = web.asked[-1]
    assert (seen.method, seen.path, seen.body) == ("GET", "/done", b"")
    assert (seen.headers["authorization"], seen.headers["x-key"]) == ("Bearer abc", "s")
    # It has no body any more to be of a type.
    assert (asked.headers["content-type"], "content-type" in seen.headers) == ("text/plain", False)


@pytest.mark.parametrize("location", ["http://a.example/x", "ftp://a.example/x", "file:///etc/passwd"])
def test_no_redirect_leads_out_of_tls_or_of_http(location: str) -> None:
    hop = http._Hop("GET", httpx.URL("https://a.example/"), {}, None)
    assert hop.next(302, "/y").url == "https://a.example/y"
    with pytest.raises(http._Failed, match="not followed from here") as refused:
        hop.next(302, location)
    assert refused.value.end.reason == "http_redirect"


def test_a_header_of_the_job_takes_the_place_of_ours_however_it_is_written() -> None:
    asked = http.HttpRequest("http://x", headers={"user-agent": "mine", "ACCEPT": "text/html"})
    made = http._headers(asked, assignment_for("http", {}))
    assert [(name, made[name]) for name in made if name.lower() in {"user-agent", "accept"}] == [
        ("user-agent", "mine"),
        ("ACCEPT", "text/html"),
    ]


async def test_what_may_be_connected_to_changes_with_the_settings(directory: ClaimDirectory) -> None:
    executor = HttpExecutor(executor_host(directory.root, http_allow=LOCAL))
    ends = []
    with serving_web({"/": reply(200)}) as web:
        for allow in (LOCAL, (), LOCAL):
            executor.adapt(executor_host(directory.root, http_allow=allow))
            execution = await executor.start(assignment_for("http", {"url": f"{web.url}/"}), directory, {})
            ends.append((await execution.wait()).reason)
    assert ends == [None, "http_address_refused", None]


async def test_redirects_are_capped(directory: ClaimDirectory) -> None:
    with serving_web({"/": reply(302, Location="/")}) as web:
        end = await perform(directory, {"url": f"{web.url}/", "redirects": 3})
        assert len(web.asked) == 4
        assert end.reason == "http_status"
        taken = await perform(directory, {"url": f"{web.url}/", "redirects": 0, "expected_status": ["302"]})
    assert (taken.exit_code, len(web.asked)) == (0, 5)


async def test_the_checked_address_is_the_one_connected_to(directory: ClaimDirectory) -> None:
    """DNS that answers differently the second time gets no second question."""
    answers = iter([["127.0.0.1"], ["::1"]])

    async def rebinding(host: str, port: int) -> list[str]:
        assert host == "rebind.example"
        return next(answers)

    with serving_web({"/": reply(200, b"first")}) as web:
        url = f"http://rebind.example:{web.port}/"
        end = await perform(directory, {"url": url}, resolve=rebinding)
        assert (end.exit_code, text(directory, "stdout")) == (0, "first")
        again = await perform(directory, {"url": url}, resolve=rebinding)
    assert again.reason == "http_address_refused"
    assert [asked.headers["host"] for asked in web.asked] == [f"rebind.example:{web.port}"]


async def test_an_answer_without_end_is_cut(directory: ClaimDirectory) -> None:
    hung_up = threading.Event()

    def endless(request: BaseHTTPRequestHandler) -> None:
        request.send_response(200)
        request.end_headers()
        try:
            while True:
                request.wfile.write(b"x" * 65_536)
        except OSError:
            hung_up.set()

    with serving_web({"/": endless}) as web:
        end = await perform(directory, {"url": f"{web.url}/"})
        assert await asyncio.to_thread(hung_up.wait, 20)
    assert end.exit_code == 0
    assert directory.stream("stdout").stat().st_size == LOGGED_BYTES
    assert "the rest was not read" in text(directory, "stderr")
    assert output(directory)["truncated"] is True


async def test_a_slow_answer_can_be_broken_off(directory: ClaimDirectory) -> None:
    asked, hung_up = threading.Event(), threading.Event()

    def slow(request: BaseHTTPRequestHandler) -> None:
        asked.set()
        request.rfile.read(1)  # returns when the other side closes
        hung_up.set()

    with serving_web({"/": slow}) as web:
        execution = await begin(directory, {"url": f"{web.url}/"})
        assert await asyncio.to_thread(asked.wait, 20)
        async with asyncio.timeout(20):
            assert await execution.end(grace=30) == Exit()
        assert await asyncio.to_thread(hung_up.wait, 20)


async def test_a_kill_comes_from_any_thread(directory: ClaimDirectory) -> None:
    asked = threading.Event()

    def slow(request: BaseHTTPRequestHandler) -> None:
        asked.set()
        request.rfile.read(1)

    with serving_web({"/": slow}) as web:
        execution = await begin(directory, {"url": f"{web.url}/"})
        assert await asyncio.to_thread(asked.wait, 20)
        await asyncio.to_thread(execution.kill_tree)
        async with asyncio.timeout(20):
            assert await execution.wait() == Exit()


async def test_silence_is_not_waited_out_for_ever(
    directory: ClaimDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a job without a timeout of its own."""
    monkeypatch.setattr(http, "_SILENCE_SECONDS", 0.2)
    with serving_web({"/": lambda request: request.rfile.read(1)}) as web:
        end = await perform(directory, {"url": f"{web.url}/"})
    assert (end.exit_code, end.reason) == (None, "http_silent")
    assert "give the job a timeout" in str(end.message)


async def test_nobody_there_is_said(directory: ClaimDirectory) -> None:
    with serving_web({}) as web:
        pass
    end = await perform(directory, {"url": f"{web.url}/"})
    assert end.reason == "http_unreachable"
    assert not directory.output.read_bytes()


async def test_an_unknown_host_is_said(directory: ClaimDirectory) -> None:
    async def nowhere(host: str, port: int) -> list[str]:
        raise OSError("no such name")

    end = await perform(directory, {"url": "http://nowhere.example/"}, resolve=nowhere)
    assert end.reason == "http_unreachable"


async def test_names_are_looked_up_for_real() -> None:
    assert "127.0.0.1" in await look_up("127.0.0.1", 80)


async def test_proxies_of_the_environment_are_not_asked(
    directory: ClaimDirectory, monkeypatch: pytest.MonkeyPatch
) -> None:
    with serving_web({}) as proxy, serving_web({"/": reply(200)}) as web:
        for name in ("http_proxy", "HTTP_PROXY", "all_proxy"):
            monkeypatch.setenv(name, proxy.url)
        assert (await perform(directory, {"url": f"{web.url}/"})).exit_code == 0
    assert proxy.asked == []


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    openssl = shutil.which("openssl")
    if openssl is None:
        pytest.skip("openssl makes the certificate for this test: install it")
    folder = tmp_path_factory.mktemp("tls")
    key, chain = folder / "key.pem", folder / "chain.pem"
    made = "req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 3 -subj /CN=pinned.example"
    subprocess.run(
        [
            openssl,
            *made.split(),
            "-addext",
            "subjectAltName=DNS:pinned.example",
            "-keyout",
            key,
            "-out",
            chain,
        ],
        check=True,
        capture_output=True,
    )
    return key, chain


async def test_certificates_are_verified_under_the_name_of_the_url(
    directory: ClaimDirectory, certificate: tuple[Path, Path]
) -> None:
    key, chain = certificate
    server_side = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    server_side.load_cert_chain(chain, key)

    async def here(host: str, port: int) -> list[str]:
        return ["127.0.0.1"]

    trusting = ssl.create_default_context(cafile=str(chain))
    with serving_web({"/": reply(200)}, tls=server_side) as web:

        async def ask(host: str, **parts: Any) -> Exit:
            return await perform(directory, {"url": f"https://{host}:{web.port}/"}, resolve=here, **parts)

        assert (await ask("pinned.example", tls=trusting)).exit_code == 0
        assert "CERTIFICATE_VERIFY_FAILED" in str((await ask("other.example", tls=trusting)).message)
        assert "CERTIFICATE_VERIFY_FAILED" in str((await ask("pinned.example")).message)


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"url": "ftp://example.org/"},
        {"url": "https://user:pw@example.org/"},
        {"url": "https:///nothing"},
        {"url": "https://example.org/", "unknown": 1},
        {"url": "https://example.org/", "headers": ["a"]},
    ],
)
async def test_what_cannot_be_a_request_is_refused_before_it_begins(
    directory: ClaimDirectory, options: dict[str, Any]
) -> None:
    with pytest.raises(Invalid):
        await begin(directory, options)
