"""The parts of a development system: embedded PostgreSQL, a server and a separate agent process."""

from __future__ import annotations

import asyncio
import os
import random
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from hetuflow_core.access.roles import Role
from hetuflow_core.errors import Unauthenticated
from hetuflow_core.resources.identity import AgentTokenRequest, ApiKeyRequest
from hetuflow_core.runtime.clock import SystemClock
from hetuflow_core.runtime.config.loading import load_settings
from hetuflow_core.runtime.late_parts import LateParts
from hetuflow_core.runtime.lifecycle import Application, Part, StopSwitch
from hetuflow_core.runtime.loop import Loop
from hetuflow_core.runtime.timers import Timers
from hetuflow_server.app.direct_database import open_store
from hetuflow_server.app.server import server_parts
from hetuflow_server.dev.agent_process import AgentProcess, agent_environment
from hetuflow_server.dev.folder import DevFolder, DevInfo
from hetuflow_server.dev.restarter import RestartedPart, Restarter
from hetuflow_server.embedded import EmbeddedPostgres
from hetuflow_server.http.listening import Listener
from hetuflow_server.identity.access import Access
from hetuflow_server.identity.keys.agent_tokens import AgentTokens
from hetuflow_server.identity.keys.api_keys import ApiKeys
from hetuflow_server.identity.request_rates import RequestRates
from hetuflow_server.requests.context import RequestContext
from hetuflow_server.requests.principal import Principal
from hetuflow_server.schema import migrate
from hetuflow_server.settings import DatabaseSettings, ServerSettings

_HOST = "127.0.0.1"
_WATCH_EVERY_SECONDS = 1.0
_STOP_SECONDS = 45.0
_URL, _KEY = "HETUFLOW_DATABASE__URL", "HETUFLOW_SERVER__SECRET_KEY"
# Placeholder until the database runs, so that all other settings are checked first.
_PLACEHOLDERS = {_URL: "postgresql://not-started-yet/hetuflow", _KEY: "x" * 32}

_WHO = RequestContext.internal(Principal.with_role("dev", Role.ADMIN))


class DevSystem:
    """All parts of `hetuflow dev`.

    A database named by HETUFLOW_DATABASE__URL is used as it is; without one PostgreSQL is embedded.
    """

    def __init__(
        self,
        *,
        data_dir: Path,
        port: int,
        env: Mapping[str, str],
        on_ready: Callable[[DevSystem], None],
    ) -> None:
        self._env = env
        self._port = port
        # Rejects invalid settings before anything is started or written.
        self.log = self._settings(_PLACEHOLDERS).log
        self.folder = DevFolder(data_dir)
        self.listener = Listener(_HOST, port)
        self.postgres = None if self._given(_URL) else EmbeddedPostgres(self.folder.postgres)
        self.agent = AgentProcess(self._agent_environment)
        self._database_url = ""
        self._stop_switch = StopSwitch()
        self._on_ready = on_ready

    def application(self) -> Application:
        timers = Timers(SystemClock())
        watched: list[RestartedPart] = [self.agent, *([self.postgres] if self.postgres else [])]
        watch = Loop(
            "restarter",
            Restarter(watched, self.write_info).run_once,
            timers=timers,
            rng=random.Random(),  # noqa: S311 - spreads load, guards nothing
            every=_WATCH_EVERY_SECONDS,
        )
        return Application(
            [
                self.listener,
                self.folder,
                *([self.postgres] if self.postgres else []),
                LateParts("server", self._server_parts),
                self.agent,
                timers,
                watch,
                _InfoFile(self),
            ],
            stop_timeout=_STOP_SECONDS,
            stop_switch=self._stop_switch,
            on_ready=lambda: self._on_ready(self),
        )

    def write_info(self) -> None:
        pids = {"dev": os.getpid(), "agent": self.agent.pid}
        if self.postgres:
            pids["postgres"] = self.postgres.pid
        self.folder.write_info(
            DevInfo(self.listener.url, self.folder.secret("api_key"), self._database_url, pids),
        )

    def _server_parts(self) -> Sequence[Part]:
        known: dict[str, str] = {}
        if not self._given(_KEY):
            known[_KEY] = self.folder.secret_key()
        if self.postgres:
            known[_URL] = self.postgres.url
        settings = self._settings(known)
        self._database_url = settings.database.url.reveal()
        return [
            _Migration(self._database_url),
            _Credentials(settings.database, self.folder),
            *server_parts(settings, self.listener, self._stop_switch),
        ]

    def _settings(self, known: Mapping[str, str]) -> ServerSettings:
        env = {**self._env, "HETUFLOW_SERVER__PORT": str(self._port), "HETUFLOW_SERVER__HOST": _HOST}
        return load_settings(
            ServerSettings,
            env=env | {name: value for name, value in known.items() if not self._given(name)},
        )

    def _given(self, variable: str) -> bool:
        return variable in self._env or f"{variable}_FILE" in self._env

    def _agent_environment(self) -> dict[str, str]:
        return agent_environment(
            self._env,
            name="dev",
            server_url=self.listener.url,
            token=self.folder.secret("agent_token") or "",
            data_dir=str(self.folder.agent),
            # Ctrl-C also stops tasks.
            on_stop="end",
        )


class _Migration:
    name = "migration"

    def __init__(self, database_url: str) -> None:
        self._database_url = database_url

    async def start(self) -> None:
        await asyncio.to_thread(migrate.upgrade, self._database_url)

    async def stop(self) -> None:
        pass


class _Credentials:
    """Create an API key and an agent token if the stored ones are not valid in the database."""

    name = "credentials"

    def __init__(self, settings: DatabaseSettings, folder: DevFolder) -> None:
        self._settings = settings
        self._folder = folder

    async def start(self) -> None:
        async with open_store(self._settings) as database:
            clock = SystemClock()
            access = Access(database, clock, RequestRates(clock, requests_per_second=1))
            try:
                await access.principal(self._folder.secret("api_key"))
            except Unauthenticated:
                made = await ApiKeys(database, clock).create(_WHO, ApiKeyRequest("dev", Role.ADMIN))
                self._folder.keep_secret("api_key", made.key)
            try:
                await access.agent(self._folder.secret("agent_token"))
            except Unauthenticated:
                tokens = AgentTokens(database, clock)
                token = (await tokens.create(_WHO, AgentTokenRequest("dev"))).token
                self._folder.keep_secret("agent_token", token)

    async def stop(self) -> None:
        pass


class _InfoFile:
    """dev.json, which exists only while everything runs."""

    name = "dev.json"

    def __init__(self, system: DevSystem) -> None:
        self._system = system

    async def start(self) -> None:
        self._system.write_info()

    async def stop(self) -> None:
        self._system.folder.info_file.unlink(missing_ok=True)
