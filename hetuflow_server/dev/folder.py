"""The data folder of a development system.

DIR/postgres/      the embedded database
DIR/agent/         the agent's data
DIR/secret_key     generated once, mode 0600; so are api_key and agent_token
DIR/dev.json       connection data while it runs, mode 0600
"""

from __future__ import annotations

import os
import secrets
from pathlib import Path

import msgspec

from hetuflow_server.embedded.directory import blaming


class DevInfo(msgspec.Struct, frozen=True):
    """The content of dev.json: connection data of a running development system."""

    url: str
    api_key: str | None
    database_url: str
    pids: dict[str, int]


class DevFolder:
    """Created before anything else starts, so that problems with it are reported first."""

    name = "data directory"

    def __init__(self, path: Path) -> None:
        self.path = path.absolute()

    @property
    def postgres(self) -> Path:
        return self.path / "postgres"

    @property
    def agent(self) -> Path:
        return self.path / "agent"

    @property
    def info_file(self) -> Path:
        return self.path / "dev.json"

    async def start(self) -> None:
        with blaming(self.path):
            # Readable for all: as root, the database runs under another account. Secret files are 0600.
            self.path.mkdir(mode=0o755, parents=True, exist_ok=True)
            self.info_file.unlink(missing_ok=True)

    async def stop(self) -> None:
        pass

    def secret_key(self) -> str:
        """Return the server's secret key; generate it on first use."""
        if (known := self.secret("secret_key")) is not None:
            return known
        new = secrets.token_urlsafe(48)
        self.keep_secret("secret_key", new)
        return new

    def secret(self, name: str) -> str | None:
        file = self.path / name
        with blaming(self.path):
            return file.read_text().strip() if file.exists() else None

    def keep_secret(self, name: str, secret: str) -> None:
        with blaming(self.path):
            _write_private(self.path / name, secret.encode())

    def write_info(self, info: DevInfo) -> None:
        with blaming(self.path):
            _write_private(self.info_file, msgspec.json.format(msgspec.json.encode(info), indent=2) + b"\n")


def _write_private(file: Path, content: bytes) -> None:
    """Write a file atomically, readable only for its owner."""
    draft = file.with_name(f".{file.name}.{os.getpid()}")
    descriptor = os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        with os.fdopen(descriptor, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        draft.replace(file)
    except OSError:
        draft.unlink(missing_ok=True)
        raise
