"""What may be asked for on the command line, and what an HTTP answer has to look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import FIGURES, OPTIONAL, parse
from bench.figure import BenchFailed
from bench.wire import parse_head


def test_without_names_all_but_the_optional_figures_run() -> None:
    options = parse([])
    assert set(options.figures) == FIGURES.keys() - OPTIONAL
    assert options.figures
    assert (options.quick, options.json) == (False, None)


def test_named_figures_run_once_in_the_order_of_the_program() -> None:
    options = parse(["claim-history", "latency", "latency", "--quick", "--json", "out.jsonl"])
    assert options.figures == ["latency", "claim-history"]
    assert (options.quick, options.json) == (True, Path("out.jsonl"))


def test_an_unknown_figure_is_told_with_what_there_is(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        parse(["nop"])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert "nop" in told
    assert all(name in told for name in FIGURES)


def test_every_figure_says_what_it_is_held_against() -> None:
    for name, measure in FIGURES.items():
        module = __import__(measure.__module__, fromlist=["measure"])
        assert "Held against" in (module.__doc__ or ""), name


def test_the_head_of_an_answer() -> None:
    assert parse_head(b"HTTP/1.1 201 Created\r\nX: y\r\ncontent-length: 12\r\n\r\n") == (201, 12)
    with pytest.raises(BenchFailed, match="without a length"):
        parse_head(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
