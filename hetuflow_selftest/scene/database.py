"""The database as the self-test looks at it: by SQL of its own, past the proxies and past the product."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final

import psycopg
import zstandard
from psycopg import sql
from psycopg.rows import dict_row

from hetuflow_selftest.history import History, boottime, wall_minus_boottime

_PATIENCE_SECONDS: Final = 60.0

# Who moves cursors, bindings and the end of the audit trail is written down with it, so that the judge need
# not believe whoever did it: servers have roles of their own, and the commit's time is the database's.
INSTRUMENTS: Final = """
CREATE SCHEMA selftest;
CREATE TABLE selftest.leader_write (
  id bigint GENERATED ALWAYS AS IDENTITY, server name NOT NULL, what text NOT NULL);
GRANT USAGE ON SCHEMA selftest TO PUBLIC;
GRANT INSERT ON selftest.leader_write TO PUBLIC;
CREATE FUNCTION selftest.note() RETURNS trigger LANGUAGE plpgsql AS $$
BEGIN
  INSERT INTO selftest.leader_write (server, what) VALUES (session_user, TG_ARGV[0]);
  RETURN NULL;
END $$;
CREATE TRIGGER selftest_note AFTER UPDATE ON sched_schedule FOR EACH ROW
  WHEN (OLD.version = NEW.version AND NEW.cursor > OLD.cursor AND NEW.fired_count > OLD.fired_count)
  EXECUTE FUNCTION selftest.note('fires');
CREATE TRIGGER selftest_note AFTER UPDATE ON sched_namespace_binding FOR EACH ROW
  WHEN (OLD.server_id <> NEW.server_id) EXECUTE FUNCTION selftest.note('a binding');
CREATE TRIGGER selftest_note AFTER UPDATE ON sched_audit_head FOR EACH ROW
  WHEN (OLD.seq < NEW.seq) EXECUTE FUNCTION selftest.note('a seal');
"""

# name → the rows the judge gets; times in seconds since 1970.
DUMPED: Final[Mapping[str, str]] = {
    "task": """
SELECT t.id::text, j.name AS job, t.schedule_id::text, t.backfill_id::text, t.status, t.reason,
  extract(epoch FROM t.fire_at)::float AS fire_at, extract(epoch FROM t.due_at)::float AS due_at,
  extract(epoch FROM t.created_at)::float AS created_at,
  extract(epoch FROM t.finished_at)::float AS finished_at,
  t.attempts, t.losses, t.flow_run_id::text, t.flow_node, t.map_index,
  CASE WHEN j.name = 'on-event' THEN t.params->>'key' END AS event_key
FROM sched_task t JOIN sched_job j ON j.id = t.job_id""",
    "instance": """
SELECT i.id::text, i.task_id::text, j.name AS job, i.seq, i.attempt, i.status, i.reason,
  i.token::text, i.claim_no, a.name AS agent, i.schedule_id::text, i.slot, i.exit_code, i.signal,
  extract(epoch FROM i.started_at)::float AS started_at,
  extract(epoch FROM i.finished_at)::float AS finished_at
FROM sched_task_instance_history i JOIN sched_job j ON j.id = i.job_id
LEFT JOIN sched_agent a ON a.id = i.agent_id""",
    "live_instance": """
SELECT id::text, task_id::text, status, held_reason, cancel_requested FROM sched_task_instance""",
    "leader_term": """
SELECT epoch, holder::text, extract(epoch FROM at)::float AS noted_at,
  extract(epoch FROM pg_xact_commit_timestamp(xmin))::float AS committed_at FROM leader_term""",
    "leader_write": """
SELECT w.server::text, w.what, extract(epoch FROM pg_xact_commit_timestamp(w.xmin))::float AS committed_at
FROM selftest.leader_write w""",
    "server": """
SELECT id::text, url, hostname, extract(epoch FROM started_at)::float AS started_at FROM sched_server""",
    "late_report": "SELECT instance_id::text, token::text, report FROM sched_late_report",
    "flow_run": "SELECT id::text, status FROM sched_flow_run",
    "event": "SELECT id::text, name, key FROM sched_event",
}
_LOGS: Final = """
SELECT instance_id::text, claim_no, stream, start_offset, byte_length, data FROM sched_log_chunk
ORDER BY instance_id, claim_no, stream, start_offset"""

_TERMINAL_TASKS: Final = "SELECT id::text, status FROM sched_task WHERE finished_at IS NOT NULL"
_ENDED_INSTANCES: Final = (
    "SELECT id::text, status || ' ' || coalesce(token::text, '') FROM sched_task_instance_history"
)
_LEADER: Final = """
SELECT l.holder::text, l.epoch, l.expires_at > clock_timestamp() AS held, f.holder::text AS fence_holder,
  f.epoch AS fence_epoch, s.url
FROM distributed_lock l LEFT JOIN leader_fence f USING (name) LEFT JOIN sched_server s ON s.id = l.holder
WHERE l.name = 'scheduler_leader'"""

# As the judge will see it: a term has begun when it was committed.
_GENERATED: Final = """
SELECT EXISTS (
  SELECT FROM leader_term l JOIN sched_task t ON t.created_at > pg_xact_commit_timestamp(l.xmin)
  WHERE l.epoch > %s AND t.schedule_id IS NOT NULL)"""
_LOST: Final = """
SELECT EXISTS (
  SELECT FROM sched_task_instance_history i JOIN sched_agent a ON a.id = i.agent_id
  WHERE a.name = %s AND i.status = 'lost'
    AND i.started_at < to_timestamp(%s) AND i.finished_at > to_timestamp(%s))"""
_WROTE_LATELY: Final = """
SELECT EXISTS (
  SELECT FROM (SELECT xmin FROM selftest.leader_write ORDER BY id DESC LIMIT 1) w
  WHERE pg_xact_commit_timestamp(w.xmin) > clock_timestamp() - make_interval(secs => %s))"""

_UNFINISHED: Final = """
SELECT (SELECT count(*) FROM sched_task_instance) + (SELECT count(*) FROM sched_event_todo)"""


def prepare(url: str, password: str, servers: Mapping[str, str]) -> None:
    """Install the instruments, and a role for each of these servers."""
    with psycopg.connect(url, autocommit=True) as connection:
        connection.execute(INSTRUMENTS)
        for role in servers:
            # As the owner of everything: roles tell the servers apart and are no part of what is tested.
            connection.execute(
                sql.SQL("CREATE ROLE {} SUPERUSER LOGIN PASSWORD {}").format(
                    sql.Identifier(role), sql.Literal(password)
                )
            )


def dump(url: str, history: History, server_urls: Mapping[str, str]) -> None:
    """Write the final rows down; `server_urls` tells which role is whose."""
    with psycopg.connect(url, row_factory=dict_row) as connection:
        for name, statement in DUMPED.items():
            for row in connection.execute(statement):
                if name == "leader_write":
                    row["url"] = server_urls.get(row["server"], row["server"])
                history.write(name, **row)
        for log in _logs(connection):
            history.write("log", **log)


def _logs(connection: psycopg.Connection[dict[str, Any]]) -> list[dict[str, Any]]:
    """Each stream put together, with the offsets its chunks claim."""
    unpack = zstandard.ZstdDecompressor()
    logs: dict[tuple[str, int, str], dict[str, Any]] = {}
    for row in connection.execute(_LOGS):
        key = row["instance_id"], row["claim_no"], row["stream"]
        log = logs.setdefault(
            key, {"instance": key[0], "claim_no": key[1], "stream": key[2], "chunks": [], "text": ""}
        )
        text = unpack.decompress(row["data"])
        log["chunks"].append([row["start_offset"], row["byte_length"], len(text)])
        log["text"] += text.decode(errors="replace")
    return list(logs.values())


class Observer:
    """Looks again and again at what must not change any more, and writes down what does."""

    def __init__(self, url: str, history: History) -> None:
        self._url = url
        self._history = history
        self._seen: dict[str, dict[str, str]] = {"task": {}, "instance": {}}
        self._leader: tuple[Any, ...] | None = None
        self._connection: psycopg.AsyncConnection[Any] | None = None
        self.looks = 0

    async def look(self) -> None:
        try:
            if self._connection is None:
                self._connection = await psycopg.AsyncConnection.connect(
                    self._url, autocommit=True, connect_timeout=3
                )
            await self._compare("task", _TERMINAL_TASKS)
            await self._compare("instance", _ENDED_INSTANCES)
            await self._note_leader()
            self.looks += 1
        except (psycopg.Error, OSError) as error:
            self._history.write("blind", error=str(error).strip()[:200])
            await self.close()

    async def close(self) -> None:
        connection, self._connection = self._connection, None
        if connection is not None:
            await connection.close()

    async def _compare(self, what: str, statement: str) -> None:
        if self._connection is None:
            return
        rows = await (await self._connection.execute(statement)).fetchall()
        found, known = dict(rows), self._seen[what]
        for id_, status in found.items():
            if known.get(id_) != status:
                self._history.write("ended", what=what, id=id_, status=status)
        for id_ in known.keys() - found.keys():
            self._history.write("vanished", what=what, id=id_, status=known[id_])
        self._seen[what] = found

    async def _note_leader(self) -> None:
        if self._connection is None:
            return
        row = await (await self._connection.execute(_LEADER)).fetchone()
        if row is not None and row != self._leader:
            self._leader = row
            names = ("holder", "epoch", "held", "fence_holder", "fence_epoch", "url")
            self._history.write("leader", **dict(zip(names, row, strict=True)))


async def ask(url: str, statement: str, values: Sequence[Any] = ()) -> list[tuple[Any, ...]]:
    """One question on a connection of its own; patiently, as the database may be away on purpose."""
    deadline = boottime() + _PATIENCE_SECONDS
    while True:
        try:
            async with await psycopg.AsyncConnection.connect(
                url, autocommit=True, connect_timeout=5
            ) as connection:
                return await (await connection.execute(statement, values)).fetchall()
        except psycopg.OperationalError:
            if boottime() > deadline:
                raise
            await asyncio.sleep(0.2)


async def leader(url: str) -> tuple[str, int, str] | None:
    """Return (holder, term, address) of whoever leads just now."""
    rows = await ask(url, _LEADER)
    if not rows or not rows[0][2]:
        return None
    holder, epoch, _, _, _, address = rows[0]
    return holder, epoch, address


async def generated_after(url: str, epoch: int) -> bool:
    """Whether a leader of a later term has made fires since it leads."""
    rows = await ask(url, _GENERATED, [epoch])
    return bool(rows[0][0])


async def lost_since(url: str, agent: str, since: float) -> bool:
    """Whether something was declared lost later than this that the agent had begun before; boottime."""
    then = since + wall_minus_boottime()
    rows = await ask(url, _LOST, [agent, then, then])
    return bool(rows[0][0])


async def leader_wrote(url: str, seconds: float) -> bool:
    """Whether whoever leads has written something as such so lately."""
    rows = await ask(url, _WROTE_LATELY, [seconds])
    return bool(rows[0][0])


async def unfinished(url: str) -> int:
    """How much waits or runs, and how many events may still start something; in one look at both."""
    rows = await ask(url, _UNFINISHED)
    return int(rows[0][0])
