"""Whose files define what."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple

from hetuflow_core.jobfile import Kind
from hetuflow_server.postgres.database import Connection


class _Home(NamedTuple):
    table: str
    name: str = "name"
    there: str = "true"


# Namespaces have none: they are everybody's who has something in them.
_HOMES: Final[Mapping[Kind, _Home]] = {
    Kind.JOB: _Home("sched_job", there="deleted_at IS NULL"),
    Kind.CALENDAR: _Home("sched_calendar"),
    Kind.LIMIT: _Home("sched_limit", name="scope", there="named"),
    Kind.SECRET: _Home("sched_secret"),
    Kind.WEBHOOK: _Home("sched_webhook"),
}
OWNED_KINDS: Final = tuple(_HOMES)

_ALL = " UNION ALL ".join(
    f"SELECT '{kind.value}' AS kind, namespace_id, {home.name} AS name, owner "
    f"FROM {home.table} WHERE {home.there}"
    for kind, home in _HOMES.items()
)

_FIND = f"""
SELECT o.kind, o.namespace_id, n.name AS namespace, o.name, o.owner
FROM ({_ALL}) o JOIN sched_namespace n ON n.id = o.namespace_id
WHERE o.owner IS NOT DISTINCT FROM %(owner)s::text
  AND (%(namespaces)s::text[] IS NULL OR n.name = ANY(%(namespaces)s::text[]))
ORDER BY n.name COLLATE "C", o.kind, o.name COLLATE "C"
LIMIT %(limit)s::bigint"""


@dataclass(frozen=True, slots=True)
class OwnedRow:
    kind: Kind
    namespace_id: int
    namespace: str
    name: str
    owner: str | None


async def find(
    connection: Connection, owner: str | None, namespaces: Sequence[str] | None, *, limit: int | None = None
) -> list[OwnedRow]:
    """Return what somebody owns, or nobody does, in these namespaces or in all of them."""
    within = None if namespaces is None else list(namespaces)
    rows = await connection.execute(_FIND, {"owner": owner, "namespaces": within, "limit": limit})
    return [OwnedRow(Kind(row.kind), row.namespace_id, row.namespace, row.name, row.owner) for row in rows]


async def of(
    connection: Connection, kind: Kind, names: Sequence[tuple[int, str]]
) -> dict[tuple[int, str], str]:
    """Return the owners of those of these, by (namespace, name), that have one."""
    home = _HOMES[kind]
    rows = await connection.execute(
        f"SELECT namespace_id, {home.name} AS name, owner FROM {home.table} "
        f"WHERE {home.there} AND owner IS NOT NULL AND (namespace_id, {home.name}) IN "
        "(SELECT * FROM unnest(%(namespaces)s::integer[], %(names)s::text[]))",
        _arrays(names),
    )
    return {(row.namespace_id, row.name): row.owner for row in rows}


async def stamp(connection: Connection, kind: Kind, names: Sequence[tuple[int, str]], owner: str) -> None:
    """Make somebody the owner of these; the caller has locked them."""
    home = _HOMES[kind]
    await connection.execute(
        f"UPDATE {home.table} SET owner = %(owner)s WHERE {home.there} AND (namespace_id, {home.name}) IN "
        "(SELECT * FROM unnest(%(namespaces)s::integer[], %(names)s::text[]))",
        {**_arrays(names), "owner": owner},
    )


def _arrays(names: Sequence[tuple[int, str]]) -> dict[str, list[int] | list[str]]:
    return {"namespaces": [id_ for id_, _ in names], "names": [name for _, name in names]}
