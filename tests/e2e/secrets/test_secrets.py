"""Secrets from the command line to a task's environment, and to nowhere else."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import uuid4

import psycopg
import pytest
import yaml

from hetuflow_core.errors import Conflict, Invalid
from tests.e2e.conftest import System
from tests.support.processes.processes import HETUFLOW, run

ROOT = Path(__file__).parents[3]


def everything_stored(system: System) -> str:
    """All tables of the database as text, logs as they were compressed included."""
    with psycopg.connect(system.database_url) as connection:
        names = connection.execute(
            "SELECT oid::regclass::text FROM pg_class WHERE relkind = 'r' AND relname ~ '^(sched|hetuflow)'"
        ).fetchall()
        return "".join(
            str(connection.execute(f"SELECT array_agg(t::text) FROM {name} t").fetchone())
            for (name,) in names
        )


def test_a_task_gets_it_and_nobody_else_does(system: System, tmp_path: Path) -> None:
    value, name = f"hunter-{uuid4().hex}", f"token-{uuid4().hex[:8]}"
    (tmp_path / "token").write_text(f"{value}\n")
    command = [*HETUFLOW, "secret", "set", name, "--from-file", str(tmp_path / "token"), "-o", "json"]
    made = run(command, env=system.environment())
    assert made.returncode == 0, made.stderr
    assert (json.loads(made.stdout)["version"], value in made.stdout) == (1, False)

    script = (
        'printf "half:%s" "${TOKEN:0:20}"; sleep 0.5; printf "%s\\n" "${TOKEN:20}"; echo "len ${#TOKEN}"; '
        'echo "{\\"said\\": \\"$TOKEN\\"}" > $HETUFLOW_OUTPUT; echo "50 at $TOKEN" > $HETUFLOW_PROGRESS; '
        "tr '\\0' '\\n' < /proc/$$/cmdline | grep -c -- \"$TOKEN\"; exit 3"
    )
    job = system.apply(run={"script": script, "env": {"TOKEN": {"secret": name}}})
    task = system.client.wait(system.client.run(job.id).id, timeout=60)
    assert task.status == "failed"
    log = system.client.logs(task.instances[0].id).decode()
    assert log.splitlines() == ["half:" + "*" * len(value), f"len {len(value)}", "0"]
    assert value not in everything_stored(system)
    assert value not in "".join(system.server.lines)

    shown = system.get(f"/api/v1/secrets/default/{name}").json()
    assert shown["used_by"] == [job.name]
    assert "value" not in shown
    with pytest.raises(Conflict):
        system.client.delete_secret("default", name)


def test_files_name_where_values_come_from(system: System, tmp_path: Path) -> None:
    text = (ROOT / "examples/secrets.yaml").read_text()
    file = tmp_path / "secrets.yaml"
    file.write_text(text)
    command = [*HETUFLOW, "apply", "-f", str(file)]
    missing = run(command, env=system.environment())
    assert missing.returncode != 0
    assert "API_TOKEN is not set" in missing.stderr
    value = f"hunter-{uuid4().hex}"
    applied = run(command, env=system.environment(API_TOKEN=value))
    assert applied.returncode == 0, applied.stderr
    assert "secret default/api-token created" in applied.stdout
    assert value not in applied.stdout + applied.stderr
    again = run(command, env=system.environment(API_TOKEN=value))
    assert "secret default/api-token unchanged" in again.stdout

    document = next(
        one for one in yaml.safe_load_all(text) if one["kind"] == "job" and "script" in one["run"]
    )
    task = system.client.run(system.client.job("default", document["name"]).id)
    assert system.client.wait(task.id, timeout=60).status == "succeeded"

    unknown = document | {"run": {"command": ["true"], "env": {"A": {"secret": "nowhere"}}}}
    with pytest.raises(Invalid) as refused:
        system.client.apply([unknown])
    assert refused.value.faults[0].field == "documents[0].run.env.A"


def test_the_key_is_rotated_by_command(system: System) -> None:
    done = run([*HETUFLOW, "secret", "rotate-key", "-o", "json"], env=system.environment())
    assert (done.returncode, json.loads(done.stdout)) == (0, {"rewrapped": 0})
    short = run([*HETUFLOW, "secret", "set", "x", "--from-env", "SHORT"], env=system.environment(SHORT="ab"))
    assert short.returncode != 0
    assert "at least 4 characters" in short.stderr
