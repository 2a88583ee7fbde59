"""Facts without which figures mean nothing: what they were measured on, and how busy it was."""

from __future__ import annotations

import os
import platform
import time
from dataclasses import dataclass
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path

import psutil
import psycopg

from bench.samples import percentile
from bench.system import System
from hetuflow_core import __version__

_SETTINGS = ("server_version", "fsync", "synchronous_commit", "full_page_writes", "wal_sync_method")
_DISTRIBUTIONS = ("litestar", "granian", "psycopg", "msgspec", "uvloop")
_SYNCS = 50
_BLOCK = b"\0" * 8192
_MEBIBYTE = 1 << 20


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
    processor: str = ""
    kernel: str = ""
    memory_mib: int = 0
    # Of the distributions that do most of the work.
    versions: dict[str, str] | None = None

    def sentences(self) -> list[str]:
        durability = ", ".join(
            f"{name} {value}" for name, value in self.postgresql.items() if name != "server_version"
        )
        postgresql = f"PostgreSQL {self.postgresql['server_version']}"
        machine = ", ".join(filter(None, [f"{self.cores} cores", self.processor, self.kernel]))
        return [
            f"{self.at}: Hetuflow {self.hetuflow}, Python {self.python}, {postgresql}",
            f"{machine}, {self.memory_mib / 1024:.0f} GiB; load {self.load_before:.1f} before the run",
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
        processor=_processor(),
        kernel=f"{platform.system()} {platform.release().partition('-')[0]}",
        memory_mib=psutil.virtual_memory().total // _MEBIBYTE,
        versions=_versions(),
    )


def _processor() -> str:
    told = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    return next((line.partition(":")[2].strip() for line in told if line.startswith("model name")), "")


def _versions() -> dict[str, str]:
    installed = {one.metadata["Name"].lower(): one.version for one in metadata.distributions()}
    return {name: installed[name] for name in _DISTRIBUTIONS if name in installed}


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
