"""What a run prints and writes down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from bench.figure import Aim, Figure, Limit, Line
from bench.machine import Machine
from bench.report import append_json, shown, table
from bench.samples import Spread

LIMITED = Line(
    "no-op", "/s", [50.0, 40.0, 90.0], Limit("bare", [100.0, 100.0, 100.0]), Aim(0.5, at_least=True)
)
ALONE = Line("created", "/s", [1234.5])
MACHINE = Machine("2026-01-01T00:00:00+00:00", "0.1.0", "3.11.7", 2, 0.5, {"server_version": "18.4"}, 0.6)


def test_the_table_shows_value_limit_ratio_and_aim_in_aligned_columns() -> None:
    lines = table([Figure("a", [LIMITED]), Figure("b", [ALONE])]).splitlines()
    assert len({len(line) for line in lines}) == 1
    header, rule, limited, alone = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    assert header == ["figure", "value", "limit measured beside it", "limit", "ratio", "aim"]
    assert set("".join(rule)) == {"-"}
    assert limited == [
        "no-op",
        "50.0 (40.0..90.0) /s",
        "bare",
        "100 /s",
        "0.50 (0.40..0.90)",
        "≥ 0.5 met",
    ]
    assert alone == ["created", "1,234 /s", "-", "-", "-", "-"]


@pytest.mark.parametrize(
    ("aim", "met"),
    [
        (Aim(0.4, at_least=True), True),
        (Aim(0.6, at_least=True), False),
        (Aim(0.6, at_least=False), True),
        (Aim(0.4, at_least=False), False),
    ],
)
def test_an_aim_is_met_by_the_median_ratio(aim: Aim, met: bool) -> None:
    line = Line("x", "ms", LIMITED.values, LIMITED.limit, aim)
    assert (f"{aim} met" in table([Figure("a", [line])])) is met


@pytest.mark.parametrize(
    ("value", "text"), [(0.034, "0.03"), (9.99, "9.99"), (12.34, "12.3"), (18219.4, "18,219")]
)
def test_numbers_are_as_precise_as_they_deserve(value: float, text: str) -> None:
    assert shown(Spread(value, 0.5, 200), "ms") == f"{text} (0.50..200) ms"


def test_a_single_value_claims_no_spread() -> None:
    assert shown(Spread.of([3.0]), "ms") == "3.00 ms"


def test_json_lines_hold_every_repetition_and_are_added(tmp_path: Path) -> None:
    file = tmp_path / "runs.jsonl"
    for _ in range(2):
        append_json(file, MACHINE, [Figure("a", [LIMITED, ALONE])])
    machine, limited, alone, again, *_ = map(json.loads, file.read_text(encoding="utf-8").splitlines())
    assert machine["kind"] == again["kind"] == "machine"
    assert machine["postgresql"] == {"server_version": "18.4"}
    assert (limited["figure"], limited["values"]) == ("a", [50.0, 40.0, 90.0])
    assert limited["limit"] == {"what": "bare", "values": [100.0, 100.0, 100.0]}
    assert limited["ratio"]["median"] == 0.5
    assert alone["limit"] is alone["ratio"] is None
