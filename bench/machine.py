"""Facts without which figures mean nothing: what they were measured on, and how busy it was."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import psycopg

from bench.samples import percentile
from bench.system import System
from hetuflow_core import __version__

_SETTINGS = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method")
_SYNCS = 50
_BLOCK = b"\0" * 8192


@dataclass(frozen=True, slots=True)
class Machine:
    at: str
    hetuflow: str
    python: str
    cores: int
    # One-minute load before anything was started: well above 0 means that others worked here too.
    load_before: float
    postgresql: dict[str, str]
    fdatasync_ms: float

    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def sentences(self) -> list[str]:
        durability = ", ".join(
            f"{name} {value}" for name, value in self.postgresql.items() if name != "server_version"
        )
        postgresql = f"PostgreSQL {self.postgresql['server_version']}"
        return [
            f"{self.at}: Hetuflow {self.hetuflow}, Python {self.python}, {postgresql}",
            f"{self.cores} cores, load {self.load_before:.1f} before the run",
            f"PostgreSQL settings: {durability}",
            f"Write and fdatasync of 8 KiB on the same disk: {self.fdatasync_ms:.2f} ms (p50)",
        ]


def inspect_machine(system: System, load_before: float) -> Machine:
    with psycopg.connect(system.database_url) as connection:
        rows = [(name, connection.execute(f"SHOW {name}".encode()).fetchone()) for name in _SETTINGS]
    return Machine(
        at=datetime.now(UTC).isoformat(timespec="seconds"),
        hetuflow=__version__,
        python=platform.python_version(),
        cores=len(os.sched_getaffinity(0)),
        load_before=load_before,
        postgresql={name: str(row[0]) for name, row in rows if row},
        fdatasync_ms=_fdatasync_ms(system.folder / "fdatasync"),
    )


def _fdatasync_ms(file: Path) -> float:
    """What one small durable write costs on the disk the database is on."""
    times = []
    with file.open("wb", buffering=0) as written:
        for _ in range(_SYNCS):
            began = time.perf_counter()
            written.write(_BLOCK)
            os.fdatasync(written.fileno())
            times.append(time.perf_counter() - began)
    file.unlink()
    return percentile(times, 50) * 1_000
