"""What people and pipes see."""

from __future__ import annotations

import io
from datetime import UTC, datetime, timedelta
from uuid import uuid4

import pytest

from hetuflow_server.cli.output import rich_output
from hetuflow_server.cli.output.layout import Column, Kind, Sheet, Table, ago, plain, written

NOW = datetime(2026, 7, 1, 12, tzinfo=UTC)
TABLE = Table(
    [Column("ID", Kind.ID), Column("STATUS", Kind.STATUS), Column("N", Kind.NUMBER), Column("AT", Kind.TIME)],
    [["a", "succeeded", 7, NOW - timedelta(minutes=5)], ["bcd", "failed", 1234, None]],
)


def test_plain_tables_are_aligned_and_without_colour() -> None:
    assert plain([TABLE]).splitlines() == [
        "ID   STATUS        N  AT",
        "a    succeeded     7  2026-07-01T11:55:00Z",
        "bcd  failed     1234  -",
    ]


def test_a_table_without_rows_still_has_its_head() -> None:
    assert plain([Table([Column("ID"), Column("NAME")], [])]) == "ID  NAME"


def test_plain_blocks_are_apart() -> None:
    assert plain([Sheet([("id", "x"), ("exit code", 3)]), "free text"]) == (
        "id:         x\nexit code:  3\n\nfree text"
    )


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (None, "-"),
        ("", "-"),
        (0, "0"),
        ("two\nlines", "two lines"),
        ("\x1b[31mred\x1b[0m", "\N{REPLACEMENT CHARACTER}[31mred\N{REPLACEMENT CHARACTER}[0m"),
        ("grün ✓", "grün ✓"),
    ],
)
def test_cells_stay_on_their_line_and_leave_the_terminal_alone(cell: str | int | None, text: str) -> None:
    assert written(cell) == text


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0, "now"),
        (0.9, "now"),
        (1, "1s ago"),
        (119, "119s ago"),
        (120, "2m ago"),
        (7_199, "119m ago"),
        (7_200, "2h ago"),
        (3 * 86_400, "3d ago"),
        (-300, "in 5m"),
    ],
)
def test_relative_times(seconds: float, text: str) -> None:
    assert ago(NOW - timedelta(seconds=seconds), NOW) == text


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


@pytest.fixture
def terminal(monkeypatch: pytest.MonkeyPatch) -> Terminal:
    screen = Terminal()
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "40")
    for variable in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE"):
        monkeypatch.delenv(variable, raising=False)
    return screen


def test_ids_are_whole_on_a_narrow_terminal(terminal: Terminal) -> None:
    ids = [str(uuid4()), str(uuid4())]
    columns = [Column("ID", Kind.ID), Column("TASK", Kind.ID), Column("WHY")]
    rich_output.show([Table(columns, [[*ids, "a reason that needs some room " * 3]])], now=NOW, file=terminal)
    shown = terminal.getvalue()
    assert all(identity in shown for identity in ids)
    assert "…" not in shown


def test_a_terminal_shows_colour_and_felt_time(terminal: Terminal) -> None:
    rich_output.show([TABLE], now=NOW, file=terminal)
    assert "5m ago" in terminal.getvalue()
    assert "\x1b[32msucceeded" in terminal.getvalue()


def test_a_terminal_without_colour(terminal: Terminal, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_COLOR", "1")
    rich_output.show([Table([Column("STATUS", Kind.STATUS)], [["failed"]])], now=NOW, file=terminal)
    assert "\x1b[3" not in terminal.getvalue()


def test_brackets_are_no_markup(terminal: Terminal) -> None:
    rich_output.show(
        [Sheet([("why", "list[int] [red]x[/red]")]), Table([Column("A")], [["[bold]b"]]), "[i]c"],
        now=NOW,
        file=terminal,
    )
    shown = terminal.getvalue()
    assert all(text in shown for text in ("list[int] [red]x[/red]", "[bold]b", "[i]c"))


def test_words_are_not_broken_and_a_place_that_all_share_is_left_out(terminal: Terminal) -> None:
    columns = [Column("NAMESPACE", Kind.PLACE), Column("JOB"), Column("WHY"), Column("AT", Kind.TIME)]
    rows = [["default", "a-job-with-a-name", "nothing to do with it", NOW], ["default", "b", "x", NOW]]
    rich_output.show([Table(columns, rows)], now=NOW, file=terminal)
    shown = terminal.getvalue()
    assert "NAMESPACE" not in shown
    assert "default" not in shown
    assert all(word in shown for word in ("a-job-with-a-name", "nothing"))
    rich_output.show([Table(columns, [*rows, ["other", "b", "x", NOW]])], now=NOW, file=terminal)
    assert all(word in terminal.getvalue() for word in ("NAMESPACE", "default", "other"))
    assert "NAMESPACE" in plain([Table(columns, rows)]), "programs get the same columns always"
