"""Read the fenced code blocks of a Markdown page."""

from __future__ import annotations

import re
import textwrap
from dataclasses import dataclass

_FENCE = re.compile(
    r"(?:^[ ]*<!--[ ]*(?P<directive>not run|keeps running)(?P<reason>[^\n]*?)-->[ ]*\n)?"
    r"^(?P<indent>[ ]*)```(?P<language>\w*)(?P<options>[^\n]*)\n"
    r"(?P<text>.*?)^(?P=indent)```[ ]*$",
    re.DOTALL | re.MULTILINE,
)
_TITLE = re.compile(r'title="([^"]+)"')
# A here-document, or a line with its continuation lines; then the output before the next command.
_COMMAND = re.compile(
    r"\$ (?P<typed>[^\n]*<<'?(?P<word>\w+)'?[^\n]*\n.*?^(?P=word)\n|(?:[^\n]*\\\n)*[^\n]*\n)"
    r"(?P<printed>(?:(?!\$ )[^\n]*\n)*)",
    re.DOTALL | re.MULTILINE,
)


@dataclass(frozen=True, slots=True)
class Block:
    line: int
    language: str
    title: str | None
    text: str
    not_run: str | None = None
    keeps_running: bool = False


@dataclass(frozen=True, slots=True)
class Command:
    line: int
    typed: str
    printed: str


def blocks_of(page: str) -> list[Block]:
    return [_block(page, match) for match in _FENCE.finditer(page)]


def _block(page: str, match: re.Match[str]) -> Block:
    title = _TITLE.search(match["options"])
    line = page.count("\n", 0, match.start("indent")) + 1
    reason = (match["reason"] or "").strip(" :")
    assert match["directive"] != "not run" or reason, (
        f"line {line}: the reason why the block is not run is missing"
    )
    return Block(
        line,
        match["language"],
        title[1] if title else None,
        textwrap.dedent(match["text"]),
        not_run=reason or None,
        keeps_running=match["directive"] == "keeps running",
    )


def commands_of(block: Block) -> list[Command]:
    """Return the commands of a console block, each with the output that the page shows."""
    assert block.text.startswith("$ "), f"line {block.line}: a console block starts with a command after '$ '"
    return [
        Command(
            block.line + 1 + block.text.count("\n", 0, match.start()),
            match["typed"].rstrip("\n"),
            match["printed"],
        )
        for match in _COMMAND.finditer(block.text)
    ]
