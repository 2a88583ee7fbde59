"""The gateway's own entrance: agents' calls go by no framework, which would cost more than they ask for."""

from __future__ import annotations

import secrets
from collections.abc import Mapping
from datetime import timedelta
from http import HTTPStatus
from typing import Any

import msgspec
from litestar.exceptions import MethodNotAllowedException

from hetuflow_core import ids, messages as m
from hetuflow_server.gateway.calls import CALLS, Call, Gateway
from hetuflow_server.http.credentials import credential_in
from hetuflow_server.http.direct_calls import CallRequest, DirectAnswer, DirectCall, HungUp
from hetuflow_server.http.problems import PROBLEM_JSON, answer_of

_encode = msgspec.json.Encoder().encode


def entrances(gateway: Gateway) -> Mapping[str, DirectCall]:
    """Return what agents may call, by its path."""
    return {f"{m.GATEWAY_PATH}/{name}": Entrance(gateway, call) for name, call in CALLS.items()}


class Entrance:
    """Where one kind of call comes in."""

    def __init__(self, gateway: Gateway, call: Call[Any]) -> None:
        self.most_body = call.most_body
        self.waits = call.waits
        self._gateway = gateway
        self._call = call

    async def answer(self, request: CallRequest) -> DirectAnswer:
        try:
            payload = await self._serve(request)
        except HungUp:
            raise
        except Exception as error:  # noqa: BLE001 - the one place that turns errors of agents' calls into answers
            said = answer_of(error, path=request.path, trace_id=request.trace_id)
            return DirectAnswer(said.status, PROBLEM_JSON, _encode(said.problem), said.headers)
        return DirectAnswer(HTTPStatus.OK, "application/json", _envelope(self._call.answer_kind, payload))

    async def _serve(self, request: CallRequest) -> Any:
        if request.method != "POST":
            raise MethodNotAllowedException(
                "The calls of agents are made with POST.", headers={"Allow": "POST"}
            )
        said = request.headers.get(b"authorization", b"").decode("latin-1")
        agent = await self._gateway.access.agent(credential_in(said))
        asked = self._call.read(await request.body())
        return await self._call.serve(self._gateway, agent, asked)


def _envelope(kind: m.MessageKind, payload: Any) -> bytes:
    at = ids.EPOCH + timedelta(milliseconds=payload.server_time)
    return _encode(m.Envelope(ids.new_id(at, secrets.token_bytes(10)), payload.server_time, kind, payload))
