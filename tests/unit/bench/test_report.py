"""What a run prints, and what it writes down to be printed again."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, strategies as st

from bench import report
from bench.figure import USUAL, Aim, Figure, Limit, Line, Skip, Verdict
from bench.machine import Machine
from bench.report import document, put_into, shown, table
from bench.results import Failure, Measured, NotResults, Results, load, save
from bench.samples import Spread

LIMITED = Line(
    "no-op", "/s", [50.0, 40.0, 90.0], Limit("bare", [100.0, 100.0, 100.0]), Aim(0.5, at_least=True, best=0.8)
)
ALONE = Line("created", "/s", [1234.5])
FELT = Line("latency", "ms", [7.0], Limit("bare", [1.0]), Aim(8, at_least=False, best=4, of_value=True))
INGEST = Line("lines", "/s", [250_000.0], aim=Aim(100_000, at_least=True, best=200_000, of_value=True))
MACHINE = Machine("2026-01-01T00:00:00+00:00", "0.1.0", "3.11.7", 2, 0.5, {"server_version": "18.4"}, 0.6)


def results(*figures: Figure) -> Results:
    return Results(MACHINE, USUAL, [Measured(figure, 2.5, 0.5, 1.5) for figure in figures], seconds=10.0)


def cells(text: str) -> list[list[str]]:
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in text.splitlines()]


def test_the_table_shows_value_limit_ratio_and_bounds_in_aligned_columns() -> None:
    text = table([Figure("a", [LIMITED, FELT]), Figure("b", [ALONE, INGEST])])
    assert len({len(line) for line in text.splitlines()}) == 1
    header, rule, limited, felt, alone, ingest = cells(text)
    assert header == [
        *("figure", "value", "limit measured beside it", "limit", "ratio"),
        *("reach", "aim", "verdict"),
    ]
    assert set("".join(rule)) == {"-"}
    assert limited == [
        *("no-op", "50.0 (40.0..90.0) /s", "bare", "100 /s", "0.50 (0.40..0.90)"),
        *("≥ 0.5", "≥ 0.8", "reached"),
    ]
    assert felt[-4:] == ["7.00", "≤ 8 ms", "≤ 4 ms", "reached"]
    assert alone == ["created", "1,234 /s", *["-"] * 6]
    assert ingest[-3:] == ["≥ 100,000 /s", "≥ 200,000 /s", "aim met"]


@pytest.mark.parametrize(
    ("aim", "verdict"),
    [
        (Aim(0.6, at_least=True, best=0.8), Verdict.MISSED),
        (Aim(0.5, at_least=True, best=0.8), Verdict.REACHED),
        (Aim(0.4, at_least=True, best=0.5), Verdict.AIM_MET),
        (Aim(0.4, at_least=True), Verdict.REACHED),
        (Aim(0.4, at_least=False, best=0.3), Verdict.MISSED),
        (Aim(0.6, at_least=False, best=0.4), Verdict.REACHED),
        (Aim(0.6, at_least=False, best=0.5), Verdict.AIM_MET),
        # Of the value, 50, whatever the ratio is.
        (Aim(0.5, at_least=False, of_value=True), Verdict.MISSED),
        (Aim(49, at_least=True, best=50, of_value=True), Verdict.AIM_MET),
    ],
)
def test_a_verdict_is_about_the_median(aim: Aim, verdict: Verdict) -> None:
    assert Line("x", "ms", LIMITED.values, LIMITED.limit, aim).verdict is verdict


def test_without_a_limit_there_is_no_ratio_to_reach() -> None:
    assert Line("x", "ms", [1.0], aim=Aim(0.5, at_least=True)).verdict is None
    assert ALONE.verdict is None


@given(st.floats(0.001, 1e6), st.floats(0.001, 1e6), st.floats(1, 10), st.booleans())
def test_whoever_meets_the_aim_has_reached_the_bound(
    measured: float, reach: float, factor: float, at_least: bool
) -> None:
    aim = Aim(reach, at_least=at_least, best=reach * factor if at_least else reach / factor)
    bound_alone = Aim(reach, at_least=at_least).verdict(measured)
    assert (aim.verdict(measured) is Verdict.MISSED) is (bound_alone is Verdict.MISSED)


@pytest.mark.parametrize(
    ("value", "text"), [(0.034, "0.03"), (9.99, "9.99"), (12.34, "12.3"), (18219.4, "18,219")]
)
def test_numbers_are_as_precise_as_they_deserve(value: float, text: str) -> None:
    assert shown(Spread(value, 0.5, 200), "ms") == f"{text} (0.50..200) ms"


def test_a_single_value_claims_no_spread() -> None:
    assert shown(Spread.of([3.0]), "ms") == "3.00 ms"


def test_a_document_repeats_what_has_two_bounds_and_tells_the_circumstances() -> None:
    ran = results(Figure("a", [LIMITED, ALONE], ["a: a note"]), Figure("b", [], (), [Skip("peer", "absent")]))
    ran.failures.append(Failure("c", "it broke"))
    everything, wanted, notes = (part for part in document(ran).split("\n\n") if part.startswith(("|", "-")))
    assert [row[0] for row in cells(everything)[2:]] == ["no-op", "created", "peer"]
    assert [row[0] for row in cells(wanted)[2:]] == ["no-op", "peer"]
    assert cells(wanted)[-1][1] == "skipped: absent"
    assert "load 0.5 before the run" in notes
    assert "a 0.5..1.5, b 0.5..1.5" in notes
    assert "- a: a note." in notes
    assert "- c could not be measured: it broke." in notes


def test_what_is_written_can_be_read_and_says_what_follows_from_it(tmp_path: Path) -> None:
    file = tmp_path / "new" / "run.json"
    ran = results(Figure("a", [LIMITED, FELT], ["note"], [Skip("peer", "absent")]))
    save(file, ran)
    assert load([file]) == ran
    told = json.loads(file.read_text("utf-8"))
    line = told["measured"][0]["figure"]["lines"][0]
    assert line["values"] == [50.0, 40.0, 90.0]
    assert line["value"] == {"median": 50.0, "low": 40.0, "high": 90.0}
    assert line["ratio"] == {"median": 0.5, "low": 0.4, "high": 0.9}
    assert line["aim"] == {"reach": 0.5, "at_least": True, "best": 0.8, "of_value": False}
    assert line["verdict"] == "reached"
    assert told["machine"]["load_before"] == 0.5
    assert [one.name for one in file.parent.iterdir()] == ["run.json"]


def test_later_runs_take_the_place_of_earlier_ones(tmp_path: Path) -> None:
    files = [tmp_path / "first.json", tmp_path / "second.json"]
    first = results(Figure("a", [LIMITED]), Figure("b", [ALONE]))
    second = results(Figure("b", [INGEST]))
    second.failures.append(Failure("a", "measured before"))
    for file, ran in zip(files, (first, second), strict=True):
        save(file, ran)
    both = load(files)
    assert [(figure.name, figure.lines[0]) for figure in both.figures] == [("a", LIMITED), ("b", INGEST)]
    assert (both.failures, both.seconds) == ([], 20.0)


@pytest.mark.parametrize("content", ["", "{}", '{"format": 2}'])
def test_other_files_are_refused(tmp_path: Path, content: str) -> None:
    file = tmp_path / "run.json"
    file.write_text(content)
    with pytest.raises(NotResults, match=r"run\.json"):
        load([file])


def test_another_format_is_refused(tmp_path: Path) -> None:
    file = tmp_path / "run.json"
    ran = results()
    ran.format = 99
    save(file, ran)
    with pytest.raises(NotResults, match="format 99"):
        load([file])


def test_tables_are_put_between_the_marks_of_a_page(tmp_path: Path) -> None:
    file, page = tmp_path / "run.json", tmp_path / "page.md"
    save(file, results(Figure("a", [LIMITED])))
    page.write_text("before\n<!-- figures: begin -->\nold\n<!-- figures: end -->\nafter\n", "utf-8")
    for _ in range(2):
        assert report.main([str(file), "--into", str(page)]) == 0
    text = page.read_text("utf-8")
    assert text.startswith("before\n<!-- figures: begin -->\n\n|")
    assert text.endswith("\n\n<!-- figures: end -->\nafter\n")
    assert text.count("0.50 (0.40..0.90)") == 2
    assert "old" not in text
    with pytest.raises(NotResults, match="begin"):
        put_into("no marks", "table")
    page.write_text("no marks")
    assert report.main([str(file), "--into", str(page)]) == 1
