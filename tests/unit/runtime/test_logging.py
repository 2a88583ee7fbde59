from __future__ import annotations

import asyncio
import io
import json
import logging
import os
import re
import subprocess
import sys
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any

import pytest
import structlog

from hetuflow_core.errors import ConfigInvalid
from hetuflow_core.runtime.logging import LogHandler, bind_request, configure_logging
from hetuflow_core.runtime.redaction import MASK, redact, redact_text

Log = Callable[[], list[dict[str, Any]]]

pytestmark = pytest.mark.usefixtures("untouched_logging")


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_line_is_one_json_object_with_its_origin_first(logged: Log) -> None:
    before = datetime.now(UTC)
    structlog.get_logger("hetuflow.test").warning("It rains.", where="Bergen", count=3)
    (line,) = logged()
    assert list(line)[:4] == ["timestamp", "level", "logger", "event"]
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z", line["timestamp"])
    assert abs((datetime.fromisoformat(line["timestamp"]) - before).total_seconds()) < 60
    del line["timestamp"]
    expected = {
        "level": "warning",
        "logger": "hetuflow.test",
        "event": "It rains.",
        "where": "Bergen",
        "count": 3,
    }
    assert line == expected


@pytest.mark.parametrize(
    "name", ["uvicorn.error", "alembic.runtime.migration", "apscheduler.scheduler", "some.library"]
)
def test_the_standard_librarys_loggers_end_in_the_same_place(logged: Log, name: str) -> None:
    logging.getLogger(name).error("%s of %d", "two", 5)
    (line,) = logged()
    assert (line["logger"], line["level"], line["event"]) == (name, "error", "two of 5")


@pytest.mark.parametrize("name", ["apscheduler.scheduler", "httpx", "sqlalchemy.engine", "uvicorn.access"])
def test_chatty_libraries_are_heard_when_they_complain_only(logged: Log, name: str) -> None:
    logging.getLogger(name).info("look what I did")
    logging.getLogger(name).warning("look what went wrong")
    assert [line["event"] for line in logged()] == ["look what went wrong"]


def test_handlers_that_libraries_brought_along_are_taken_off() -> None:
    stream, own = io.StringIO(), io.StringIO()
    logger = logging.getLogger("uvicorn")
    logger.addHandler(logging.StreamHandler(own))
    logger.propagate = False
    configure_logging("info", "json", stream)
    logger.error("once")
    assert own.getvalue() == ""
    assert json.loads(stream.getvalue())["event"] == "once"


def test_warnings_become_lines(logged: Log) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        logging.captureWarnings(capture=False)
        logging.captureWarnings(capture=True)
        warnings.warn("this will go away", UserWarning, stacklevel=1)
    assert "this will go away" in logged()[-1]["event"]


def test_the_level_is_obeyed_by_both_kinds_of_logger() -> None:
    stream = io.StringIO()
    configure_logging("warning", "json", stream)
    structlog.get_logger("hetuflow.test").info("no")
    logging.getLogger("hetuflow.test").info("no")
    structlog.get_logger("hetuflow.test").warning("yes")
    assert [json.loads(line)["event"] for line in stream.getvalue().splitlines()] == ["yes"]


@pytest.mark.parametrize(("level", "log_format"), [("loud", "auto"), ("info", "xml")])
def test_unknown_settings_are_refused_with_what_to_use(level: Any, log_format: Any) -> None:
    with pytest.raises(ConfigInvalid, match="is unknown: use"):
        configure_logging(level, log_format)


@pytest.mark.parametrize(
    ("log_format", "stream", "is_json"),
    [
        ("auto", io.StringIO, True),
        ("auto", Terminal, False),
        ("json", Terminal, True),
        ("console", io.StringIO, False),
    ],
)
def test_people_get_text_and_programs_get_json(
    log_format: Any, stream: type[io.StringIO], is_json: bool
) -> None:
    target = stream()
    configure_logging("info", log_format, target)
    structlog.get_logger("hetuflow.test").info("Hello.", who="you")
    assert target.getvalue().startswith('{"timestamp"') is is_json
    assert "Hello." in target.getvalue()


@pytest.mark.parametrize(
    ("stream", "environment", "coloured"),
    [
        (Terminal, {"TERM": "xterm"}, True),
        (Terminal, {"TERM": "xterm", "NO_COLOR": "1"}, False),
        (Terminal, {"TERM": "dumb"}, False),
        (io.StringIO, {"TERM": "xterm"}, False),
    ],
)
def test_colours_are_for_terminals_that_want_them(
    monkeypatch: pytest.MonkeyPatch, stream: type[io.StringIO], environment: dict[str, str], coloured: bool
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    for key, value in environment.items():
        monkeypatch.setenv(key, value)
    target = stream()
    configure_logging("info", "console", target)
    structlog.get_logger("hetuflow.test").info("Hello.")
    assert ("\x1b[" in target.getvalue()) is coloured


def test_configuring_again_moves_loggers_that_were_used_before() -> None:
    logger = structlog.get_logger("hetuflow.test.again")
    first, second = io.StringIO(), io.StringIO()
    configure_logging("info", "json", first)
    logger.info("one")
    bound = logger.bind(kept=1)
    configure_logging("debug", "console", second)
    logger.debug("two")
    bound.debug("three")
    logging.getLogger("a.library").info("four")
    assert [json.loads(line)["event"] for line in first.getvalue().splitlines()] == ["one"]
    for event in ("two", "three", "four"):
        assert second.getvalue().count(event) == 1


def test_captured_logs_work_for_loggers_that_were_used_before(logged: Log) -> None:
    logger = structlog.get_logger("hetuflow.test.captured")
    logger.info("cached from now on")
    configure_logging("info", "json", io.StringIO())
    with structlog.testing.capture_logs() as captured:
        logger.info("caught", number=1)
    assert captured == [{"event": "caught", "number": 1, "log_level": "info"}]


async def test_request_and_trace_ids_are_on_every_line_of_the_request_and_its_tasks(logged: Log) -> None:
    logger = structlog.get_logger("hetuflow.test")

    async def inner() -> None:
        logger.info("inner")

    async def request(number: int) -> None:
        with bind_request(request_id=f"r{number}", trace_id=f"t{number}"):
            await asyncio.create_task(inner())
            logging.getLogger("a.library").info("library")
        logger.info("outside")

    await asyncio.gather(request(1), request(2))
    lines = [line for line in logged() if line["logger"] != "asyncio"]
    seen = {(line["event"], line.get("request_id"), line.get("trace_id")) for line in lines}
    assert seen == {
        ("inner", "r1", "t1"),
        ("inner", "r2", "t2"),
        ("library", "r1", "t1"),
        ("library", "r2", "t2"),
        ("outside", None, None),
    }


def raise_with_secret() -> None:
    password = "hunter2"
    raise ConnectionError(f"cannot reach postgresql://app:{password}@db/hetuflow")


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_exceptions_are_rendered_without_secrets_or_local_variables(log_format: Any) -> None:
    stream = io.StringIO()
    configure_logging("info", log_format, stream)
    try:
        raise_with_secret()
    except ConnectionError:
        structlog.get_logger("hetuflow.test").exception("It broke.")
        logging.getLogger("a.library").exception("It broke there.")
    text = stream.getvalue()
    assert text.count("in raise_with_secret") == 2
    assert text.count(f"ConnectionError: cannot reach postgresql://app:{MASK}@db/hetuflow") == 2
    assert "hunter2" not in text
    if log_format == "json":
        assert all("Traceback" in json.loads(line)["exception"] for line in text.splitlines())


@pytest.mark.parametrize(
    "key",
    [
        "token",
        "access_token",
        "accessToken",
        "tokens",
        "password",
        "db_password",
        "password_hash",
        "secret",
        "client_secret",
        "Authorization",
        "proxy-authorization",
        "api_key",
        "X-Api-Key",
        "apikey",
        "cookie",
        "Set-Cookie",
        "secret_key",
        "private_key",
        "credentials",
    ],
)
def test_secret_keys_are_masked_at_any_depth(logged: Log, key: str) -> None:
    structlog.get_logger("hetuflow.test").info("x", **{key: "s3cr3t"}, headers=[{"inner": {key: ["s3cr3t"]}}])
    (line,) = logged()
    assert line[key] == MASK
    assert line["headers"] == [{"inner": {key: MASK}}]


@pytest.mark.parametrize("key", ["token_id", "secret_name", "tokenizer", "keyboard", "path", "author"])
def test_keys_that_only_sound_alike_are_kept(key: str) -> None:
    assert redact(key, "value") == "value"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("postgresql://app:p4ss@db:5432/x", f"postgresql://app:{MASK}@db:5432/x"),
        ("postgresql+psycopg://app:p@ss/w:rd@db/x", f"postgresql+psycopg://app:{MASK}@db/x"),
        ("see postgres://:p4ss@/x?host=/run now", f"see postgres://:{MASK}@/x?host=/run now"),
        ("https://db:5432/path", "https://db:5432/path"),
        ("postgresql://app@db/x", "postgresql://app@db/x"),
        ("sent Bearer abc.def-ghi to it", f"sent Bearer {MASK} to it"),
        ("{'authorization': 'bearer abc'}", f"{{'authorization': 'bearer {MASK}'}}"),
        ("Authorization: Basic dTpw\nHost: x", f"Authorization: {MASK}\nHost: x"),
        ("Cookie: a=b; c=d", f"Cookie: {MASK}"),
        ("host=db password=p4ss user=app", f"host=db password={MASK} user=app"),
        ("GET /login?token=abc&next=1", f"GET /login?token={MASK}&next=1"),
        ("Agent(name='a', token='ab c', n=1)", f"Agent(name='a', token={MASK}, n=1)"),
        ('{"api_key": "abc", "n": 1}', f'{{"api_key": "{MASK}", "n": 1}}'),
        ("client_secret=abc", f"client_secret={MASK}"),
        ("cut off: token='abc", f"cut off: token={MASK}"),
        ("Set-Cookie: a=b; c=d", f"Set-Cookie: {MASK}"),
        ("the token is missing: pass --token", "the token is missing: pass --token"),
        ("nothing to hide", "nothing to hide"),
    ],
)
def test_secrets_inside_text_are_masked(text: str, shown: str) -> None:
    assert redact_text(text) == shown


@pytest.mark.parametrize(
    "piece",
    [
        "a://b:",
        "://:",
        "a",
        "password",
        "token-",
        "token='",
        '"token',
        "Bearer ",
        "authorization :",
        "-",
        "@:",
    ],
)
def test_no_text_is_slow_to_redact(piece: str) -> None:
    text = f"token {piece * (30_000 // len(piece))}"
    started = time.process_time()
    redact_text(text)
    assert time.process_time() - started < 3  # a pattern that backtracks takes many times as long


def test_secrets_in_the_event_in_standard_messages_and_in_objects_are_masked(logged: Log) -> None:
    @dataclass
    class Login:
        user: str
        password: str

    structlog.get_logger("hetuflow.test").info(
        "Bearer abc123", login=Login("app", "abc123"), raw=b"token=abc123"
    )
    logging.getLogger("a.library").error("connecting to %s", "postgresql://u:abc123@h/d")
    assert "abc123" not in json.dumps(logged())
    assert "app" in logged()[0]["login"]


def test_flags_and_absence_are_no_secrets() -> None:
    assert redact("token", None) is None
    assert redact("password", value=False) is False


def test_bodies_are_never_logged(logged: Log) -> None:
    structlog.get_logger("hetuflow.test").info(
        "x", body=b"abc", payload={"a": 1}, request={"body": "abc", "n": 1}
    )
    (line,) = logged()
    assert line["request"] == {"n": 1}
    assert not {"body", "payload"} & set(line)


def test_huge_and_deep_and_circular_values_are_cut(logged: Log) -> None:
    circle: list[Any] = []
    circle.append(circle)
    structlog.get_logger("hetuflow.test").info("x", text="a" * 100_000, circle=circle)
    (line,) = logged()
    assert len(line["text"]) < 33_000
    assert line["text"].endswith("(67232 characters more)")


def test_any_value_can_be_logged(logged: Log) -> None:
    structlog.get_logger("hetuflow.test").info(
        "ü\udc80\n",
        moment=datetime(2026, 1, 2, tzinfo=UTC),
        error=ValueError("bad"),
        kind=int,
        numbers={3: {4}},
    )
    (line,) = logged()
    assert line["event"] == "ü\udc80\n"
    assert (line["moment"], line["error"]) == ("2026-01-02 00:00:00+00:00", "bad")
    assert (line["kind"], line["numbers"]) == ("<class 'int'>", {"3": [4]})


def test_a_line_that_cannot_be_formatted_is_told_of_and_harms_nobody(logged: Log) -> None:
    root = logging.getLogger()
    root.handlers[:] = [
        handler for handler in root.handlers if isinstance(handler, LogHandler)
    ]  # not pytest's
    logging.getLogger("a.library").error("%d items", "many")
    assert logged()[-1]["logger"] == "a.library"
    assert logged()[-1]["error"] == "TypeError"


def test_a_closed_stream_harms_nobody() -> None:
    stream = io.StringIO()
    configure_logging("info", "json", stream)
    stream.close()
    structlog.get_logger("hetuflow.test").error("into the void")
    logging.getLogger("a.library").error("into the void")
    configure_logging("info", "auto", stream)


def test_a_stderr_nobody_reads_kills_no_process() -> None:
    program = """
import sys, structlog
from hetuflow_core.runtime.logging import configure_logging
configure_logging("info", "json")
sys.stdin.read()
for number in range(2000):
    structlog.get_logger("hetuflow.test").error("line", number=number, filler="x" * 200)
print("alive", flush=True)
"""
    reader, writer = os.pipe()
    process = subprocess.Popen(
        [sys.executable, "-c", program],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=writer,
        text=True,
    )
    os.close(writer)
    os.close(reader)
    out, _ = process.communicate("", timeout=60)
    assert out == "alive\n"
