"""What a start does not load: it is what most of its time is made of."""

from __future__ import annotations

import subprocess
import sys

import pytest

from hetuflow_server.postgres.sql_fragments import SHARED_COLUMNS
from hetuflow_server.queue.tables import instance, instance_history

_NOT_LOADED = """
import sys
import {module}
names = {{name.split(".")[0] for name in sys.modules}}
print(sorted(names & {{"alembic", "pygments", "rich", "sqlalchemy"}}))
"""


@pytest.mark.parametrize(
    "module",
    ["hetuflow_core.runtime.lean_libraries, hetuflow_server.app.server", "hetuflow_agent.cli"],
    ids=["server", "agent"],
)
def test_programs_load_no_more_than_they_use(module: str) -> None:
    program = [sys.executable, "-c", _NOT_LOADED.format(module=module)]
    done = subprocess.run(program, check=True, capture_output=True, text=True)
    assert done.stdout.strip() == "[]"


def test_a_move_to_the_history_copies_every_column_both_tables_have() -> None:
    assert set(SHARED_COLUMNS) == {*instance.c.keys()} & {*instance_history.c.keys()}
