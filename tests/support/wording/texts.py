"""Collect the texts that people read: comments, docstrings, messages, test names, prose of documents."""

from __future__ import annotations

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

# A string of fewer words is a name or a format, not a sentence.
_FEWEST_WORDS = 3
_SQL = re.compile(
    r"\b(SELECT|INSERT INTO|UPDATE|DELETE FROM|CREATE|ALTER|LATERAL|FROM|WHERE|JOIN|GRANT|RETURNING)\b"
)
# Also targets of links: files keep their names.
_CODE = re.compile(r"``.+?``|`[^`]*`|(?<=\])\([^)\s]*\)|^\[[^\]]*\]: \S+")
_LOG_METHODS = {"debug", "info", "warning", "error", "exception", "critical"}


@dataclass(frozen=True, slots=True)
class Text:
    path: Path
    line: int
    text: str


def texts_of(path: Path) -> Iterator[Text]:
    """Return the texts of a Python file or a Markdown page, line by line, without quoted code."""
    source = path.read_text(encoding="utf-8")
    found = _of_python(source) if path.suffix == ".py" else _of_markdown(source)
    for first_line, text in found:
        for offset, line in enumerate(_CODE.sub("`…`", text).splitlines()):
            yield Text(path, first_line + offset, line)


def log_events_of(path: Path) -> Iterator[Text]:
    """Return the events that a Python file logs."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(
                func=ast.Attribute(value=ast.Name(id="log" | "_log" | "logger"), attr=method),
                args=[ast.Constant(value=str(event)), *_],
            ) if method in _LOG_METHODS:
                yield Text(path, node.lineno, event)


def _of_python(source: str) -> Iterator[tuple[int, str]]:
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type == tokenize.COMMENT:
            yield token.start[0], token.string.lstrip("# ")
    for node in ast.walk(ast.parse(source)):
        match node:
            case ast.Constant(value=str(text)):
                if len(text.split()) >= _FEWEST_WORDS and not _SQL.search(text):
                    yield node.lineno, text
            case ast.FunctionDef(name=name) | ast.AsyncFunctionDef(name=name) if name.startswith("test_"):
                yield node.lineno, name.replace("_", " ")


def _of_markdown(source: str) -> Iterator[tuple[int, str]]:
    in_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if line.lstrip().startswith("```"):
            in_code = not in_code
        elif not in_code:
            yield number, line
