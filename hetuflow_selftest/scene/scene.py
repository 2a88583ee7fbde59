"""The whole scene: brought up, looked after, taken down."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import socket
import sys
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit, urlunsplit

import httpx

from hetuflow_selftest.history import DATABASE, PROXY, TRACES, History, Listener, boottime
from hetuflow_selftest.scene import database, wrong_clock
from hetuflow_selftest.scene.lines import Lines
from hetuflow_selftest.scene.network import BALANCER, POSTGRES, Network, build_network
from hetuflow_selftest.scene.payload import lasts, write_payload
from hetuflow_selftest.scene.processes import (
    Program,
    SceneBroken,
    age,
    children,
    command_of,
    processes_named,
    processes_with,
    signal_all,
)
from hetuflow_selftest.scene.small_disk import SmallDisk
from hetuflow_selftest.settings import RunSettings
from hetuflow_server.embedded import EmbeddedPostgres

_START_SECONDS = 90.0
_COMMAND_SECONDS = 90.0
# Of a task that counts as running: it has told of itself, and will again.
_BEGUN_SECONDS = 0.5
_LEFT_SECONDS = 1.5


@dataclass(frozen=True, slots=True)
class Programs:
    """How servers and agents are started, behind the interpreter; tests put broken ones here."""

    server: Sequence[str] = ("-m", "hetuflow_server", "server")
    agent: Sequence[str] = ("-m", "hetuflow_agent")


class Scene:
    def __init__(self, settings: RunSettings, folder: Path, history: History, programs: Programs) -> None:
        self.settings = settings
        self.folder = folder
        self.run_id = secrets.token_hex(8)
        self.lines = Lines(folder)
        self.servers: list[Program] = []
        self.agents: list[Program] = []
        self.server_urls: list[str] = []
        self.api_key = ""
        self.payload = write_payload(folder)
        (folder / TRACES).mkdir(mode=0o777)
        # Of the first agent.
        self.small_disk = SmallDisk(folder / "agent-1-data")
        self._history = history
        self._programs = programs
        self._network: Network | None = None
        self._postgres: EmbeddedPostgres | None = None

    @property
    def database_url(self) -> str:
        return self._database_url

    @property
    def network(self) -> Network:
        if self._network is None:
            raise SceneBroken("There is no network yet.")
        return self._network

    @property
    def postgres(self) -> EmbeddedPostgres:
        if self._postgres is None:
            raise SceneBroken("There is no database yet.")
        return self._postgres

    def start_postgres(self) -> None:
        """Start it in its place, or again; all of us wait for it."""
        with self.network.inside(POSTGRES):
            self.postgres.start_blocking()

    async def start(self, tell: Callable[[str], None]) -> None:
        if "fill-disk" in self.settings.faults:
            self.small_disk.mount()
        self._network = build_network(self.settings.network, self.lines, tell)
        self._history.write("network", network=self._network.name)
        self._postgres = self._made_postgres(self._network.add(POSTGRES))
        self.start_postgres()
        self._database_url = self.postgres.url
        await self._command("db", "upgrade")
        self.api_key = await self._command("key", "create", "--role", "admin", "-q")
        parts = urlsplit(self._database_url)
        roles = {f"selftest_server_{n}": "" for n in range(1, self.settings.servers + 1)}
        database.prepare(self._database_url, parts.password or "", roles)
        await self.lines.start(self.network.add(BALANCER), self.network.entrance(BALANCER))
        addresses = [
            (self.network.add(f"server-{number}"), port)
            for number, port in enumerate(free_ports(self.settings.servers), start=1)
        ]
        self.server_urls = [f"http://{host}:{port}" for host, port in addresses]
        for number, (host, port) in enumerate(addresses, start=1):
            await self._add_server(number, host, port)
        await asyncio.gather(*(self.ready(url) for url in self.server_urls))
        token = await self._agent_token()
        for number in range(1, self.settings.agents + 1):
            await self._add_agent(number, addresses, token)
        await self._await_agents()

    async def ready(self, url: str) -> None:
        deadline = boottime() + _START_SECONDS
        async with httpx.AsyncClient(trust_env=False) as client:
            while boottime() < deadline:
                with suppress(httpx.HTTPError):
                    if (await client.get(f"{url}/readyz", timeout=5)).status_code == httpx.codes.OK:
                        return
                await asyncio.sleep(0.1)
        raise SceneBroken(f"{url} is not ready:\n" + "\n".join(one.tail() for one in self.servers))

    def listen(self) -> Listener:
        """Hear what agents and servers say to each other from now on."""
        return Listener(self.folder, PROXY)

    async def leading(self) -> tuple[Program, str, int] | None:
        """Return (the server that leads, its holder, its term)."""
        found = await database.leader(self.database_url)
        if found is None or found[2] not in self.server_urls:
            return None
        return self.servers[self.server_urls.index(found[2])], found[0], found[1]

    def _data_of(self, agent: str) -> Path:
        return self.folder / f"{agent}-data"

    def keepers_of(self, agent: Program) -> list[int]:
        return processes_named("keeper/__main__.py", str(self._data_of(agent.name)))

    def runs_tasks(self, agent: Program) -> bool:
        """Whether one of its tasks has begun and lasts: most are over before anything can be done to them."""
        tasks = [child for pid in self.keepers_of(agent) for child in children(pid)]
        return any(_BEGUN_SECONDS < age(task) < lasts(command_of(task)) - _LEFT_SECONDS for task in tasks)

    async def outlast_leases(self, since: float) -> None:
        """Wait until what was not heard of since then has lost its lease."""
        await asyncio.sleep(max(0.0, since + self.settings.lease * 1.3 - boottime()))

    def payloads(self) -> dict[int, str]:
        return processes_with(f"SELFTEST_RUN={self.run_id}")

    def step_clock(self, program: Program, seconds: float) -> None:
        """Let its wall clock be off by so much from now on."""
        _write_at_once(self._clock_of(program.name), f"{seconds:<32}")

    async def settle(self, seconds: float) -> bool:
        """Wait until nothing waits or runs any more."""
        deadline = boottime() + seconds
        while boottime() < deadline:
            if await database.unfinished(self.database_url) == 0:
                return True
            await asyncio.sleep(0.2)
        return False

    async def finish(self) -> None:
        """Stop everything but the database in order, and write down what is left of it."""
        # What a task leaves behind is nobody's fault but the agents', as long as they run.
        await self._note_left("tasks", self.payloads)
        await asyncio.gather(*(agent.stop(40) for agent in self.agents))
        await asyncio.gather(*(server.stop(40) for server in self.servers))
        await self._note_left("keepers", self._keepers)
        history = History(self.folder, DATABASE)
        roles = {f"selftest_server_{n}": url for n, url in enumerate(self.server_urls, start=1)}
        await asyncio.to_thread(database.dump, self.database_url, history, roles)
        history.close()

    async def close(self) -> None:
        """End whatever still runs, however far the run has come."""
        for program in (*self.agents, *self.servers):
            program.signal(signal.SIGCONT)
            await program.kill()
        signal_all([*self._keepers(), *self.payloads()], signal.SIGKILL)
        self.small_disk.unmount()
        await self.lines.stop()
        if self._postgres is not None:
            with suppress(Exception):
                await self._postgres.stop()
            self._postgres.destroy()
        if self._network is not None:
            self._network.close()

    def _keepers(self) -> dict[int, str]:
        return {pid: f"keeper of {agent.name}" for agent in self.agents for pid in self.keepers_of(agent)}

    async def _note_left(self, what: str, look: object) -> None:
        """Nothing has to vanish in an instant: what is there after ten seconds stays."""
        left: dict[int, str] = {}
        for _ in range(50):
            left = look()  # type: ignore[operator]
            if not left:
                break
            await asyncio.sleep(0.2)
        self._history.write("processes", what=what, left=left)

    def _made_postgres(self, host: str) -> EmbeddedPostgres:
        return EmbeddedPostgres(
            self.folder / "postgres",
            host=host,
            settings={
                "track_commit_timestamp": True,
                "fsync": self.settings.durable,
                "max_connections": 200,
                "shared_buffers": "64MB",
            },
        )

    def _clock_of(self, name: str) -> Path:
        return self.folder / f"{name}.clock"

    def _command_of(self, name: str, program: Sequence[str]) -> list[str]:
        """As it is shipped, unless clocks are to be stepped in this run."""
        if "step-clocks" not in self.settings.faults or program[0] != "-m":
            return [sys.executable, *program]
        _write_at_once(self._clock_of(name), f"{0.0:<32}")
        return [sys.executable, wrong_clock.__file__, str(self._clock_of(name)), *program[1:]]

    async def _add_server(self, number: int, host: str, port: int) -> None:
        name = f"server-{number}"
        parts = urlsplit(self._database_url)
        database_host, database_port = parts.hostname or "", parts.port or 0
        if not self.network.direct:
            database_port = await self.lines.open(name, [(database_host, database_port)], http=False)
        netloc = f"selftest_server_{number}:{parts.password}@{database_host}:{database_port}"
        environment = {
            "HETUFLOW_DATABASE__URL": urlunsplit(parts._replace(netloc=netloc)),
            "HETUFLOW_DATABASE__CONNECT_TIMEOUT": "3s",
            "HETUFLOW_SERVER__SECRET_KEY": self.run_id * 3,
            "HETUFLOW_SERVER__HOST": host,
            "HETUFLOW_SERVER__PORT": str(port),
            "HETUFLOW_SERVER__STOP_TIMEOUT": "5s",
            "HETUFLOW_LEADER__TTL": f"{int(self.settings.leader_ttl * 1000)}ms",
            "HETUFLOW_LEADER__HEARTBEAT_EVERY": f"{int(self.settings.server_beat * 1000)}ms",
            "HETUFLOW_RETENTION__PARTITION_AHEAD": "1d",
        }
        self.servers.append(self._program(name, self._programs.server, environment))
        self.servers[-1].start()

    async def _add_agent(self, number: int, servers: Sequence[tuple[str, int]], token: str) -> None:
        name = f"agent-{number}"
        self.network.add(name)
        link = await self.lines.open(name, servers, http=True)
        environment = {
            "HETUFLOW_AGENT__NAME": name,
            "HETUFLOW_AGENT__SERVER_URL": f"http://{self.lines.address}:{link}",
            "HETUFLOW_AGENT__TOKEN": token,
            "HETUFLOW_AGENT__SLOTS": str(self.settings.slots),
            "HETUFLOW_AGENT__DATA_DIR": str(self._data_of(name)),
            "HETUFLOW_AGENT__ON_STOP": "end",
            "HETUFLOW_AGENT__STOP_TIMEOUT": "20s",
        }
        self.agents.append(self._program(name, self._programs.agent, environment))
        self.agents[-1].start()

    def _program(self, name: str, program: Sequence[str], environment: dict[str, str]) -> Program:
        command = self._command_of(name, program)
        return Program(name, command, clean(environment), self.folder, self.network.entrance(name))

    async def _agent_token(self) -> str:
        headers = {"Authorization": f"Bearer {self.api_key}"}
        async with httpx.AsyncClient(headers=headers, trust_env=False) as client:
            answer = await client.post(
                f"{self.server_urls[0]}/api/v1/agent-tokens",
                json={"name": "selftest"},
                timeout=_START_SECONDS,
            )
            if answer.is_error:
                raise SceneBroken(f"No token for agents: {answer.text}")
            return str(answer.json()["token"])

    async def _await_agents(self) -> None:
        deadline = boottime() + _START_SECONDS
        while boottime() < deadline:
            rows = await database.ask(
                self.database_url, "SELECT count(*) FROM sched_agent WHERE session_id IS NOT NULL"
            )
            if rows[0][0] >= len(self.agents):
                return
            await asyncio.sleep(0.1)
        raise SceneBroken("Not all agents registered:\n" + "\n".join(one.tail() for one in self.agents))

    async def _command(self, *arguments: str) -> str:
        process = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            "hetuflow_server",
            *arguments,
            env=clean({"HETUFLOW_DATABASE__URL": self._database_url}),
            cwd=self.folder,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        said, complained = await asyncio.wait_for(process.communicate(), _COMMAND_SECONDS)
        if process.returncode != 0:
            raise SceneBroken(f"`hetuflow {' '.join(arguments)}` failed:\n{complained.decode()}")
        return said.decode().strip()


def _write_at_once(file: Path, text: str) -> None:
    """In place: whoever has it open reads the old text or the new one."""
    descriptor = os.open(file, os.O_RDWR | os.O_CREAT, 0o644)
    os.pwrite(descriptor, text.encode(), 0)
    os.close(descriptor)


def clean(settings: dict[str, str]) -> dict[str, str]:
    """Our environment with no other setting of Hetuflow's than these, and no way out of the scene."""
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith("HETUFLOW_") and not name.lower().endswith("_proxy")
    }
    return {**kept, "HETUFLOW_LOG__FORMAT": "json", **settings}


def free_ports(count: int) -> list[int]:
    """Return ports nobody listens on, and that no outgoing connection is given while a server is away."""
    first_given = int(Path("/proc/sys/net/ipv4/ip_local_port_range").read_text().split()[0])
    found: list[int] = []
    while len(found) < count:
        port = first_given // 2 + secrets.randbelow(first_given // 2 - 1)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            found.append(port)
    return found
