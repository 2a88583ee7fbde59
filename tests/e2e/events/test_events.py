"""Events through real processes: from emitting to running, in SQL, and over the death of a server."""

from __future__ import annotations

import json
import signal
from pathlib import Path
from typing import Any
from uuid import UUID, uuid4

import psycopg

from hetuflow_core.resources.events import EventDetail
from tests.e2e.conftest import System
from tests.support.processes.processes import HETUFLOW, Running, clean_environment, run
from tests.support.waiting import wait_until

EXAMPLE = Path(__file__).parents[3] / "examples/events.yaml"
BURST = 1_500


def hetuflow(system: System, *arguments: str, **variables: str) -> Any:
    result = run([*HETUFLOW, *arguments, "-o", "json"], env=system.environment(**variables))
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def started(system: System, event_id: UUID | str) -> UUID:
    """The task an event has started."""

    def look() -> UUID | None:
        event: EventDetail = system.client.event(event_id)
        return next((one.task_id for one in event.effects if one.task_id), None)

    wait_until(look, timeout=60, what="the event to start a task")
    task_id = look()
    assert task_id is not None
    return task_id


def output(system: System, event_id: UUID | str) -> str:
    task = system.client.wait(started(system, event_id), timeout=60)
    assert task.status == "succeeded"
    return system.client.logs(task.instances[-1].id, "stdout").decode()


def test_the_example_runs_from_the_command_line(system: System) -> None:
    result = run([*HETUFLOW, "apply", "-f", str(EXAMPLE)], env=system.environment())
    assert result.returncode == 0, result.stderr
    event = hetuflow(
        system, "event", "emit", "file.uploaded", "-p", "path=/in/a.csv", "-p", "size=2048", "--key", "a-1"
    )
    assert output(system, event["id"]) == "importing /in/a.csv of 2048 bytes\n"
    again = hetuflow(system, "event", "emit", "file.uploaded", "--key", "a-1")
    assert (again["id"], again["payload"]) == (event["id"], event["payload"])
    shown = hetuflow(system, "event", "get", event["id"])
    assert [(one["job"], one["outcome"]) for one in shown["effects"]] == [("import-file", "started")]
    assert event["id"] in [one["id"] for one in hetuflow(system, "event", "list", "--name", "file.*")]
    replayed = hetuflow(system, "event", "replay", event["id"])
    assert replayed["replay_of"] == event["id"]
    assert started(system, replayed["id"]) != started(system, event["id"])
    told = run([*HETUFLOW, "schedule", "next", "import-file/on-upload"], env=system.environment())
    assert "fires on each event file.uploaded" in told.stdout
    for day in (1, 2):
        system.client.emit("orders.loaded", {"day": day, "rows": 3})
    complete = system.client.emit("prices.loaded", {"day": 2})
    assert output(system, complete.id) == "balance of 2\n"


def test_a_transaction_that_commits_late_starts_its_task_then(system: System) -> None:
    name = f"late.{uuid4().hex[:8]}"
    job = system.apply(
        run={"command": ["echo", "{{ params.n }}"]},
        params={"n": 0},
        schedules=[{"name": "it", "event": {"name": name, "params": {"n": "{{ payload.n }}"}}}],
    )
    with psycopg.connect(system.database_url) as application:
        row = application.execute("SELECT hetuflow_emit('default', %s, '{\"n\": 1}')", (name,)).fetchone()
        assert row is not None
        early = system.client.emit(name, {"n": 2})
        assert output(system, early.id) == "2\n"
        application.commit()
    assert output(system, row[0]) == "1\n"
    assert len(list(system.client.tasks(job=job.name))) == 2


def test_a_task_emits_and_says_who_it_is(system: System) -> None:
    name = f"chain.{uuid4().hex[:8]}"
    emit = f"{' '.join(HETUFLOW)} event emit {name}.next -q"
    job = system.apply(
        run={
            "script": emit,
            "env": {"HETUFLOW_URL": system.url, "HETUFLOW_API_KEY": system.api_key, "PATH": "/usr/bin:/bin"},
        },
        schedules=[{"name": "it", "event": {"name": name}}],
    )
    event = system.client.emit(name)
    emitted = UUID(output(system, event.id).strip())
    found = system.client.event(emitted)
    assert (found.source, found.depth, found.task_id) == ("task", 1, started(system, event.id))
    assert job.name == system.client.task(found.task_id or "").job


def test_a_server_killed_while_it_matches_loses_and_doubles_nothing(lone_server: System) -> None:
    namespace = f"burst-{uuid4().hex[:8]}"  # which no agent of other tests serves
    lone_server.client.apply(
        [
            {"kind": "namespace", "name": namespace},
            {
                "kind": "job",
                "namespace": namespace,
                "name": "it",
                "run": {"command": ["true"]},
                "schedules": [
                    {"name": "each", "event": {"name": "burst", "filter": "payload.n >= 0"}},
                    {
                        "name": "last",
                        "event": {
                            "name": "burst",
                            "debounce": "2s",
                            "params": {"count": "{{ event.count }}"},
                        },
                    },
                ],
            },
        ]
    )
    environment = clean_environment(
        HETUFLOW_DATABASE__URL=lone_server.database_url,
        HETUFLOW_SERVER__SECRET_KEY="s" * 48,
        HETUFLOW_SERVER__PORT="0",
    )
    with psycopg.connect(lone_server.database_url, autocommit=True) as database:

        def count(what: str) -> int:
            row = database.execute(
                f"SELECT count(*) FROM {what} "
                "JOIN sched_namespace n ON n.id = namespace_id WHERE n.name = %s",
                (namespace,),
            ).fetchone()
            return row[0] if row else 0

        with Running([*HETUFLOW, "server"], env=environment) as doomed:
            doomed.await_log("listening")
            database.execute(
                "SELECT hetuflow_emit(%s, 'burst', jsonb_build_object('n', n)) FROM generate_series(1, %s) n",
                (namespace, BURST),
            )
            wait_until(lambda: count("sched_event_todo") < BURST, timeout=60, what="matching to begin")
            doomed.signal(signal.SIGKILL)
        wait_until(lambda: not count("sched_event_todo"), timeout=60, what="everything to be matched")
        wait_until(lambda: not count("sched_event_window"), timeout=60, what="the last deadline")
        rows = database.execute(
            "SELECT s.name, t.params FROM sched_task t JOIN sched_schedule s ON s.id = t.schedule_id "
            "JOIN sched_namespace n ON n.id = t.namespace_id WHERE n.name = %s",
            (namespace,),
        ).fetchall()
    assert [name for name, _ in rows].count("each") == BURST
    # However many pauses there were on a busy machine, each event is counted once.
    assert sum(params["count"] for name, params in rows if name == "last") == BURST
