"""R1 and R100: what PostgreSQL does for a queue of our shape when nothing stands before it.

pgbench claims rows of a live table and moves them into its history: same tables, indexes, checks and triggers
(a database of our own schema), two transactions for each batch, no start, no task row, no HTTP, no Python.
`R1` is one row per claim by 16 clients, `R100` a hundred rows per claim by 4.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

import psycopg

from bench.figure import BenchFailed, Pace
from bench.samples import amount_for
from bench.system import System
from hetuflow_server.embedded import find_binaries
from hetuflow_server.postgres.sql_fragments import SHARED_COLUMNS

_DATABASE = "limits"
_SECONDS_AT_MOST = 120
_TPS = re.compile(r"^tps = ([\d.]+)", re.MULTILINE)

# Ids that grow with time, as ours do: random ones would make the indexes look worse than they are.
_FILL = """
INSERT INTO sched_task_instance (id, task_id, namespace_id, placement_id, job_id, job_version, seq, attempt,
                                 status, priority, fire_at, due_at, lease_ms)
SELECT id, id, 1, 1, %(job)s, 1, 1, 1, 'pending', 500, now(), now(), 300000
FROM (SELECT (lpad(to_hex((extract(epoch FROM clock_timestamp()) * 1000)::bigint), 12, '0')
              || '7' || substr(m, 1, 3) || 'a' || substr(m, 4, 15))::uuid AS id
      FROM generate_series(1, %(count)s) i CROSS JOIN LATERAL (SELECT md5(i::text || random()::text) AS m) h
     ) n"""

_CLAIM = """
WITH candidate AS MATERIALIZED (
  SELECT id FROM sched_task_instance
  WHERE waits AND target_agent_id IS NULL AND namespace_id = 1 AND placement_id = 1
    AND priority = 500 AND due_at <= now()
  ORDER BY due_at, id LIMIT {batch} FOR UPDATE SKIP LOCKED),
claimed AS (
  UPDATE sched_task_instance i
  SET status = 'reserved', token = gen_random_uuid(), claim_no = claim_no + 1,
      agent_id = CAST('{someone}' AS uuid), session_id = CAST('{someone}' AS uuid),
      reserved_at = clock_timestamp(), reserved_until = clock_timestamp() + interval '10 seconds'
  FROM candidate c WHERE i.id = c.id AND i.status = 'pending' RETURNING i.id)
SELECT CAST(coalesce(array_agg(id), '{{}}') AS text) AS ids FROM claimed \\gset
"""
_MOVE = """
WITH ended AS (
  DELETE FROM sched_task_instance
  WHERE id = ANY(CAST(:ids AS uuid[])) AND status IN ('reserved', 'running') RETURNING *)
INSERT INTO sched_task_instance_history ({columns}, exit_code, finished_at)
SELECT {values}, 0, clock_timestamp() FROM ended;
"""
_SOMEONE = "00000000-0000-7000-8000-000000000001"


@dataclass(frozen=True, slots=True)
class Shape:
    name: str
    batch: int
    clients: int
    # Of the first, short run that only finds out how much the machine does.
    first_guess: float

    @property
    def label(self) -> str:
        return f"{self.name}: pgbench, {self.clients} clients, {self.batch} per claim"


R1 = Shape("R1", batch=1, clients=16, first_guess=1_000)
R100 = Shape("R100", batch=100, clients=4, first_guess=5_000)


class QueueLimit:
    """One of the two limits; the first call warms up and finds the amount for the others."""

    def __init__(self, bench: PgBench, shape: Shape, pace: Pace) -> None:
        self._bench = bench
        self._shape = shape
        self._pace = pace
        self._rate = shape.first_guess
        self.values: list[float] = []

    def warm_up(self) -> None:
        self._rate = self._bench.rate(self._shape, self._amount(0.3))

    def measure(self) -> None:
        self.values.append(self._bench.rate(self._shape, self._amount(self._pace.seconds)))

    def _amount(self, seconds: float) -> int:
        step = self._shape.batch * self._shape.clients
        return amount_for(seconds, self._rate, least=step, most=150_000, step=step)


class PgBench:
    def __init__(self, system: System) -> None:
        self._program = _program()
        self._url = system.migrated_database(_DATABASE)
        self._script = system.folder / "claim.sql"

    def rate(self, shape: Shape, rows: int) -> float:
        """Fill the queue, empty it with pgbench, and return the rows moved per second."""
        self._fill(rows)
        values = ", ".join("'succeeded'" if name == "status" else name for name in SHARED_COLUMNS)
        claim = _CLAIM.format(batch=shape.batch, someone=_SOMEONE)
        self._script.write_text(claim + _MOVE.format(columns=", ".join(SHARED_COLUMNS), values=values))
        transactions = rows // shape.batch
        tps = self._run(shape.clients, transactions // shape.clients)
        with psycopg.connect(self._url) as connection:
            row = connection.execute("SELECT count(*) FROM sched_task_instance_history").fetchone()
        moved = row[0] if row else 0
        return float(moved * tps / transactions)

    def _fill(self, rows: int) -> None:
        with psycopg.connect(self._url, autocommit=True) as connection:
            connection.execute("TRUNCATE sched_task_instance, sched_task_instance_history")
            connection.execute(_FILL, {"count": rows, "job": _SOMEONE})
            connection.execute("VACUUM ANALYZE sched_task_instance")

    def _run(self, clients: int, each: int) -> float:
        parts = urlsplit(self._url)
        where = {
            "PGHOST": parts.hostname or "",
            "PGPORT": str(parts.port),
            "PGUSER": parts.username or "",
            "PGPASSWORD": parts.password or "",
        }
        options = ["-n", "-M", "prepared", "-c", str(clients), "-j", "2", "-t", str(each)]
        done = subprocess.run(
            [self._program, *options, "-f", self._script, parts.path.lstrip("/")],
            env=os.environ | where,
            capture_output=True,
            text=True,
            timeout=_SECONDS_AT_MOST,
            check=False,
        )
        found = _TPS.search(done.stdout)
        if done.returncode != 0 or found is None:
            raise BenchFailed(f"pgbench failed: {done.stderr.strip() or done.stdout.strip()}")
        return float(found[1])


def _program() -> Path:
    beside = find_binaries().bin_dir / "pgbench"
    if beside.exists():
        return beside
    if found := shutil.which("pgbench"):
        return Path(found)
    raise BenchFailed("There is no pgbench beside PostgreSQL or on the path: install postgresql-contrib.")
