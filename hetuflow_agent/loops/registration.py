"""Makes this process the agent's live session; tries until a server answers."""

from __future__ import annotations

import asyncio
import platform
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import structlog

from hetuflow_agent.attempt.claims import Claims
from hetuflow_agent.gateway import Backoff, Gateway, Session, Unanswered
from hetuflow_agent.live_settings import LiveSettings
from hetuflow_agent.settings import HostSettings
from hetuflow_core import __version__
from hetuflow_core.errors import HetuflowError
from hetuflow_core.messages import LimitMeans, Register, Registered
from hetuflow_core.placement import Resources, agent_labels, automatic_labels

log: structlog.stdlib.BoundLogger = structlog.get_logger("hetuflow.agent.registration")


def _automatic_labels() -> dict[str, str]:
    host = platform.uname()
    return automatic_labels(os=host.system, arch=host.machine, hostname=host.node)


@dataclass(frozen=True, slots=True)
class Offer:
    """What this agent has for jobs, beside what `LiveSettings` say."""

    settings: HostSettings
    # Names of its executors.
    executors: Sequence[str]
    run_as: Sequence[str]
    resources: Resources


class Registration:
    """Claims on record at this time are what an earlier session left to be reported."""

    name = "registration"

    def __init__(
        self,
        gateway: Gateway,
        session: Session,
        offer: Offer,
        live: LiveSettings,
        claims: Claims,
        *,
        limit_means: Callable[[], LimitMeans],
        on_status: Callable[[str], None],
        rng: random.Random,
    ) -> None:
        self._gateway = gateway
        self._session = session
        self.offer = offer
        self._live = live
        self._on_status = on_status
        self._claims = claims
        self._limit_means = limit_means
        self._backoff = Backoff(rng)

    async def start(self) -> None:
        await self._register()

    async def stop(self) -> None:
        pass

    async def announce(self) -> None:
        """Tell the server what has changed about this agent; the session and all it holds stay."""
        await self._register()

    async def _register(self) -> None:
        while True:
            try:
                registered = await self._gateway.register(self._request())
            except HetuflowError as error:
                await asyncio.sleep(self._wait_after(error))
            else:
                self._backoff.succeed()
                self._accept(registered)
                return

    def _request(self) -> Register:
        offer = self.offer
        settings = offer.settings
        held, _ = self._claims.snapshot()
        return Register(
            name=settings.name,
            session_id=self._session.session_id,
            version=__version__,
            namespaces=list(settings.namespaces),
            slots=self._live.slots,
            labels=agent_labels(self._live.labels, _automatic_labels()),
            executors=list(offer.executors),
            run_as=list(offer.run_as),
            taints=list(self._live.taints),
            pools=list(settings.pools),
            resources=offer.resources,
            limit_means=self._limit_means(),
            running=held,
        )

    def _accept(self, registered: Registered) -> None:
        session = self._session
        session.agent_id = registered.agent_id
        session.heartbeat_every = registered.heartbeat_every / 1000
        session.poll_wait_ms = registered.poll_wait
        session.adopted = frozenset(registered.adopted)
        self._on_status(registered.status)
        settings = self.offer.settings
        log.info("Registered.", agent=settings.name, server=settings.server_url)

    def _wait_after(self, error: HetuflowError) -> float:
        """Seconds until the next try; raises what trying again cannot change."""
        if isinstance(error, Unanswered):
            wait = self._backoff.fail(error)
            log.warning("Not registered yet and trying again.", error=error.message, wait=round(wait, 2))
            return wait
        raise error
