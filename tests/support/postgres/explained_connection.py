"""A connection that plans and runs statements as a session would, and notes how many rows were read."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import psycopg
from psycopg.adapt import Transformer
from psycopg.pq import Format

from hetuflow_server.postgres.arrays import Array
from hetuflow_server.postgres.connection import Connection, Rows, row_maker

_PARAMETER = re.compile(r"%\((\w+)\)s")


class Explaining(Connection):
    """Of tables whose names begin with `watched`; if it is strict none may be read whole, nor by bitmap."""

    def __init__(self, driver: psycopg.Connection[Any], watched: str, *, strict: bool = True) -> None:
        self._strict = strict
        self._driver = driver
        self._watched = watched
        self.read = 0
        # Those that were looked into.
        self.relations = set[str]()

    async def execute(
        self, statement: str, parameters: Any = None, *, binary: bool = False, last: bool = False
    ) -> Rows:
        parameters = {name: self._plain(value) for name, value in (parameters or {}).items()}
        names = list(dict.fromkeys(_PARAMETER.findall(statement)))
        numbered = _PARAMETER.sub(lambda match: f"${names.index(match[1]) + 1}", statement)
        self._driver.execute("DEALLOCATE ALL")
        self._driver.execute(f"PREPARE listed AS {numbered}".encode())
        given = f" ({', '.join(f'%({name})s' for name in names)})" if names else ""
        with psycopg.ClientCursor(self._driver) as cursor:
            cursor.execute(f"EXPLAIN (ANALYZE, FORMAT JSON) EXECUTE listed{given}".encode(), parameters)
            row = cursor.fetchone()
            assert row is not None
            for node in _nodes(row[0][0]["Plan"]):
                if node.get("Relation Name", "").startswith(self._watched) and node["Actual Loops"]:
                    self.relations.add(node["Relation Name"])
                    walked = not re.search("Seq|Bitmap", node["Node Type"])
                    assert walked or not self._strict, (statement, node)
                    removed = node.get("Rows Removed by Filter", 0)
                    self.read += round((node["Actual Rows"] + removed) * node["Actual Loops"])
            cursor.execute(f"EXECUTE listed{given}".encode(), parameters)
            if cursor.description is None:
                return Rows((), cursor.rowcount)
            made = row_maker(tuple(column.name.encode() for column in cursor.description))
            return Rows([made(row) for row in cursor.fetchall()], cursor.rowcount)

    def _plain(self, value: Any) -> Any:
        """As the driver itself would write it: into the text of a statement."""
        if not isinstance(value, Array):
            return value
        return Transformer(self._driver).get_loader(value.array_oid, Format.BINARY).load(value.encoded)


def _nodes(plan: dict[str, Any]) -> Iterator[dict[str, Any]]:
    yield plan
    for child in plan.get("Plans", []):
        yield from _nodes(child)
