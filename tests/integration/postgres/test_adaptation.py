"""Values are adapted alike with psycopg's transformer and without it."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg import pq
from psycopg.adapt import PyFormat
from psycopg.types.json import Jsonb
from psycopg.types.numeric import Int8

from hetuflow_server.postgres.adaptation import PlainTransformer, transformer
from hetuflow_server.postgres.arrays import Uuids, register_arrays

ID = UUID("0af76519-16cd-73dd-8448-eb211c80319c")
VALUES: list[Any] = [
    *("text", b"bytes", True, 1, 2**20, 2**40, 2**70, Int8(1), 1.5, Decimal("1.50"), None),
    *(ID, datetime(2026, 1, 2, 3, tzinfo=UTC), timedelta(days=1, seconds=2), Jsonb({"a": [1]})),
    *([1, 2], [2**40], ["a", None], [], [ID], Uuids([ID, None])),
]
ROWS = """
SELECT number, NULL::int AS absent, %s::uuid AS id, now() AS at, ARRAY['a', NULL] AS texts,
       '{"a": 1}'::jsonb AS data, '1 day'::interval AS pause, '\\x00ff'::bytea AS blob,
       '10.0.0.0/8'::cidr AS network, 'x'::pg_catalog.name AS name
FROM generate_series(1, 3) AS number"""


async def test_parameters_travel_alike(database_url: str) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as driver:
        register_arrays(driver)
        quick, plain = transformer(driver), PlainTransformer(driver)
        # Twice: the second time they know the types.
        for values in (VALUES, VALUES[::-1]):
            formats = [PyFormat.AUTO] * len(values)
            assert list(plain.dump_sequence(values, formats)) == list(quick.dump_sequence(values, formats))
            assert plain.types == quick.types
            assert list(plain.formats or ()) == list(quick.formats or ())


@pytest.mark.parametrize("wanted", [pq.Format.TEXT, pq.Format.BINARY])
async def test_rows_are_read_alike(database_url: str, wanted: pq.Format) -> None:
    async with await psycopg.AsyncConnection.connect(database_url) as driver:
        result = (await driver.cursor(binary=bool(wanted)).execute(ROWS, [ID])).pgresult
        assert result is not None
        read = []
        for adaptation in (transformer(driver), PlainTransformer(driver)):
            adaptation.set_pgresult(result, set_loaders=True, format=wanted)
            read.append(adaptation.load_rows(0, 3, tuple))
        assert read[0] == read[1]
        assert [row[:3] for row in read[1]] == [(number, None, ID) for number in (1, 2, 3)]
