"""A client that writes down what it asked for and what it was told, and asks again until it knows."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, Final

import httpx

from hetuflow_selftest.history import History, boottime

_ANSWER_SECONDS: Final = 8.0
_PAUSE_SECONDS: Final = 0.3
_FIRST_SERVER_ERROR: Final = 500


class Client:
    """Asks one server after the other: what is asked here may be asked twice."""

    def __init__(self, urls: Sequence[str], key: str, history: History, *, patience: float = 60.0) -> None:
        self._urls = urls
        self._history = history
        self._patience = patience
        self._turn = 0
        self._http = httpx.AsyncClient(
            headers={"Authorization": f"Bearer {key}"},
            timeout=httpx.Timeout(_ANSWER_SECONDS, connect=2.0),
            trust_env=False,
        )

    async def close(self) -> None:
        await self._http.aclose()

    async def ask(self, method: str, path: str, body: Any = None, **query: Any) -> tuple[int, Any]:
        """Return the first answer that is one; (0, None) when there was none for too long."""
        deadline = boottime() + self._patience
        while boottime() < deadline:
            url = self._urls[self._turn % len(self._urls)]
            try:
                answer = await self._http.request(
                    method, f"{url}/api/v1{path}", json=body, params=query or None
                )
                if answer.status_code < _FIRST_SERVER_ERROR:
                    return answer.status_code, answer.json() if answer.content else None
            except httpx.HTTPError:
                pass
            self._turn += 1
            await asyncio.sleep(_PAUSE_SECONDS)
        return 0, None

    async def do(self, op: str, method: str, path: str, body: Any = None, **facts: Any) -> Any:
        """Ask for something that changes the system, and write it down; return the answer if it was a yes."""
        called = boottime()
        status, answer = await self.ask(method, path, body)
        answered = boottime() if status else None
        self.note(op, called, answered, status=status, **facts, **_told(answer))
        return answer if httpx.codes.is_success(status) else None

    def note(self, op: str, called: float, answered: float | None, **facts: Any) -> None:
        self._history.write("operation", at=called, op=op, answered=answered, **facts)


def _told(answer: Any) -> dict[str, Any]:
    """What of an answer the judge asks about."""
    if not isinstance(answer, dict):
        return {}
    return {f"told_{key}": answer[key] for key in ("id", "status", "code") if key in answer}
