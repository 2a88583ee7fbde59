"""What agents and servers say to each other, as far as the judge wants to know it."""

from __future__ import annotations

import json
from contextlib import suppress
from typing import Any

import httptools

from hetuflow_selftest.history import History, boottime, wall_minus_boottime


class Overheard:
    """Reads along on one HTTP connection, on which one request follows the other."""

    def __init__(self, history: History, link: str, target: int) -> None:
        self._history = history
        self._link = link
        self._target = target
        self._request = _Message()
        self._answer = _Message()
        self._asking = httptools.HttpRequestParser(self._request)
        self._answering = httptools.HttpResponseParser(self._answer)
        self._asked: list[tuple[float, str, bytes]] = []
        self.path = ""

    @property
    def between(self) -> bool:
        """Whether nothing is asked just now that was not answered."""
        return not self._asked and not self._request.begun

    @property
    def tells_of_an_end(self) -> bool:
        """Whether what is being answered reports that something has ended."""
        return bool(self._asked) and b'"finish"' in self._asked[0][2]

    def there(self, data: bytes) -> None:
        self._asking.feed_data(data)
        if self._request.path:
            self.path = self._request.path
        if self._request.whole:
            self._asked.append((boottime(), self._request.path, self._request.take()))

    def back(self, data: bytes) -> int | None:
        """Read on; return the status of the answer that is complete now."""
        self._answering.feed_data(data)
        return self._answering.get_status_code() if self._answer.whole else None

    def note(self, status: int, *, passed: bool) -> None:
        """Write the exchange down that has just been completed."""
        body = self._answer.take()
        if self._asked:
            at, path, asked = self._asked.pop(0)
            self._note(at, path, asked, status, body, passed=passed)

    def _note(self, at: float, path: str, asked: bytes, status: int, body: bytes, *, passed: bool) -> None:
        name = path.rpartition("/")[2]
        facts: dict[str, Any] = {}
        with suppress(ValueError, KeyError, TypeError):
            facts["agent_off"] = _off(json.loads(asked), at)
        with suppress(ValueError, KeyError, TypeError):
            if name == "reports":
                facts["reports"] = _reports(json.loads(asked), json.loads(body) if status == 200 else None)  # noqa: PLR2004  OK
            elif name == "heartbeat" and status == 200:  # noqa: PLR2004  OK
                facts["kept"] = json.loads(body)["payload"]["kept"]
            elif status >= 400:  # noqa: PLR2004  refused
                facts["code"] = json.loads(body).get("code")
        self._history.write(
            "exchange",
            at=at,
            link=self._link,
            server=self._target + 1,
            call=name,
            status=status,
            answered=round(boottime(), 6),
            passed=passed,
            **facts,
        )


class _Message:
    """Gathers one message; what httptools calls."""

    def __init__(self) -> None:
        self.path = ""
        self.whole = False
        self.begun = False
        self._body = bytearray()

    def on_message_begin(self) -> None:
        self.begun = True
        self.whole = False
        self._body.clear()

    def on_url(self, url: bytes) -> None:
        self.path = url.decode()

    def on_body(self, body: bytes) -> None:
        self._body += body

    def on_message_complete(self) -> None:
        self.begun = False
        self.whole = True

    def take(self) -> bytes:
        self.whole = False
        return bytes(self._body)


def _off(asked: dict[str, Any], at: float) -> float:
    """How far off the agent's clock is: what it said the time was, and what that was when it said so."""
    return float(round(asked["timestamp"] / 1000 - wall_minus_boottime() - at, 1))


def _reports(asked: dict[str, Any], answered: dict[str, Any] | None) -> list[dict[str, Any]]:
    said = asked["payload"]["reports"]
    results = answered["payload"]["results"] if answered else [{}] * len(said)
    return [
        {
            "type": one["type"],
            "instance": one["instance_id"],
            "token": one["token"],
            "status": one.get("status"),
            "outcome": result.get("outcome"),
        }
        for one, result in zip(said, results, strict=True)
    ]
