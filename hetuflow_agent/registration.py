"""Makes this process the agent's live session; tries until a server answers."""

from __future__ import annotations

import asyncio
import platform
import random
from collections.abc import Sequence
from typing import Final

import structlog

from hetuflow_agent.backoff import Backoff
from hetuflow_agent.gateway_client import Gateway, Session, Unanswered
from hetuflow_agent.runner.claims import Claims
from hetuflow_agent.settings import HostSettings
from hetuflow_core import __version__
from hetuflow_core.errors import Denied, HetuflowError
from hetuflow_core.messages import Register, Registered
from hetuflow_core.placement import agent_labels, automatic_labels

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.registration")

# The one refusal that time may change: somebody has to approve the agent first.
PENDING_APPROVAL: Final = "agent.pending"
_APPROVAL_WAIT: Final = 5.0


def _automatic_labels() -> dict[str, str]:
    host = platform.uname()
    return automatic_labels(os=host.system, arch=host.machine, hostname=host.node)


class Registration:
    """Claims on record at this time are what an earlier session left to be reported."""

    name = "registration"

    def __init__(
        self,
        gateway: Gateway,
        session: Session,
        settings: HostSettings,
        claims: Claims,
        *,
        executors: Sequence[str],
        rng: random.Random,
    ) -> None:
        self._gateway = gateway
        self._session = session
        self._settings = settings
        self._claims = claims
        self._executors = executors
        self._backoff = Backoff(rng)

    async def start(self) -> None:
        while True:
            try:
                registered = await self._gateway.register(self._request())
            except HetuflowError as error:
                await asyncio.sleep(self._wait_after(error))
            else:
                self._accept(registered)
                return

    async def stop(self) -> None:
        pass

    def _request(self) -> Register:
        settings = self._settings
        held, _ = self._claims.snapshot()
        return Register(
            name=settings.name,
            session_id=self._session.session_id,
            version=__version__,
            namespaces=list(settings.namespaces),
            slots=settings.slots,
            labels=agent_labels(settings.labels, _automatic_labels()),
            executors=list(self._executors),
            taints=list(settings.taints),
            pools=list(settings.pools),
            running=held,
        )

    def _accept(self, registered: Registered) -> None:
        session = self._session
        session.agent_id = registered.agent_id
        session.heartbeat_every = registered.heartbeat_every / 1000
        session.poll_wait_ms = registered.poll_wait
        log.info("Registered.", agent=self._settings.name, server=self._settings.server_url)

    def _wait_after(self, error: HetuflowError) -> float:
        """Seconds until the next try; raises what trying again cannot change."""
        if isinstance(error, Unanswered):
            wait = self._backoff.fail(error.retry_after)
            log.warning("Not registered yet and trying again.", error=error.message, wait=round(wait, 2))
            return wait
        if isinstance(error, Denied) and error.code == PENDING_APPROVAL:
            log.warning("This agent waits for approval.", error=error.message)
            return _APPROVAL_WAIT
        raise error
