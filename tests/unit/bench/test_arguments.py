"""What may be asked for on the command line, and what an HTTP answer has to look like."""

from __future__ import annotations

from pathlib import Path

import pytest

from bench.__main__ import FIGURES, parse
from bench.figure import FULL, QUICK, SMOKE, USUAL, BenchFailed
from bench.wire import parse_head


def test_without_names_everything_is_measured_and_written_down() -> None:
    options = parse([])
    assert list(options.figures) == list(FIGURES)
    assert options.pace is USUAL
    assert (options.json.parent, options.json.suffix) == (Path("bench-results"), ".json")


def test_named_figures_run_once_in_the_order_of_the_program() -> None:
    options = parse(["claim-history", "latency", "latency", "--quick", "--json", "out.json"])
    assert options.figures == ["latency", "claim-history"]
    assert (options.pace, options.json) == (QUICK, Path("out.json"))
    assert parse(["--full"]).pace is FULL
    assert parse(["--smoke"]).pace is SMOKE


def test_there_is_one_pace(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse(["--quick", "--full"])
    assert "not allowed with" in capsys.readouterr().err


def test_only_peers_are_installed(capsys: pytest.CaptureFixture[str]) -> None:
    assert parse(["peers", "--install"]).install
    for arguments in (["--install"], ["noop", "--install"], ["peers", "noop", "--install"]):
        with pytest.raises(SystemExit):
            parse(arguments)
        assert "peers alone" in capsys.readouterr().err


def test_sizes_go_with_the_pace() -> None:
    sizes = ("one", "few", "more", "many")
    assert tuple(pace.sized(*sizes) for pace in (SMOKE, QUICK, USUAL, FULL)) == sizes
    assert [pace.unless_smoke(7, 1) for pace in (SMOKE, QUICK, FULL)] == [1, 7, 7]


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
