"""The reference page of job files, made from the definitions of their keys."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from hetuflow_core.fields import Row, shape_of
from hetuflow_core.jobfile.documents import SPECS

_HEAD: Final = """# Job file reference

<!-- Made by docs/generate.py from the definitions in hetuflow_core: edit those and run it again. -->

Every key of every kind of document. The [guide](jobs.md) explains how they work together, and
[job-file.schema.json](job-file.schema.json) says the same to editors and programs.

A key that is null is as good as absent. *Since* is the version that introduced the key. These types occur:

| type | written as |
|---|---|
| duration | `500ms`, `30s`, `10m`, `1h30m`, `2d` |
| size | `4096`, `512Mi`, `10MB` |
| name | lower-case letters, digits and, inside, also `.`, `_` and `-`; up to 128 characters |
| template | text with `{{ … }}`, see [templates](jobs.md#templates) |
| expression | a condition or calculation in CEL, such as `payload.size > 1000` |
"""
_TABLE: Final = "| key | type | default | meaning | since |\n|---|---|---|---|---|"


def reference() -> str:
    sections = [_HEAD]
    for kind, spec in SPECS.items():
        page = _Page(kind.value)
        page.add(spec, "")
        sections += [f"## `kind: {kind.value}` {{ #{kind.value} }}\n", *page.sections]
    return "\n".join(sections)


class _Page:
    """The sections of one kind: its own keys, and those of each mapping below."""

    def __init__(self, kind: str) -> None:
        self.sections: list[str] = []
        self._kind = kind
        self._anchors: dict[type[Any], str] = {}

    def add(self, struct: type[Any], path: str) -> None:
        """Append the keys of a struct, then those of the structs that it contains."""
        shape, below = shape_of(struct), list[tuple[type[Any], str]]()
        rows = []
        for row in shape.rows():
            place = f"{path}.{row.name}" if path else row.name
            place += "[]" if row.form.startswith("list") else ""
            below += [(one, place) for one in row.structs if one not in self._anchors]
            self._anchors |= {
                one: self._anchor(one, place) for one in row.structs if one not in self._anchors
            }
            rows.append(self._row(row))
        notes = [f"- {note}" for rule in shape.rules if (note := rule.note())]
        self.sections += [*self._heading(struct, path), _TABLE, *rows, "", *notes, *([""] if notes else [])]
        for one, place in below:
            self.add(one, place)

    def _heading(self, struct: type[Any], path: str) -> Iterator[str]:
        if path:
            title = f" {struct.TITLE}" if hasattr(struct, "TITLE") else ""
            yield f"### `{path}`{title} {{ #{self._anchors[struct]} }}\n"

    def _anchor(self, struct: type[Any], path: str) -> str:
        title = str(getattr(struct, "TITLE", "")).replace(" ", "-")
        words = path.replace("[]", "").replace(".", "-").replace("_", "-")
        return "-".join(filter(None, (self._kind, words, title)))

    def _row(self, row: Row) -> str:
        form = row.form
        if len(row.structs) == 1:
            form = f"[{form}](#{self._anchors[row.structs[0]]})"
        elif row.structs:
            links = (f"[{one.TITLE}](#{self._anchors[one]})" for one in row.structs)
            form = f"{form}: {' or '.join(links)}"
        cells = (f"`{row.name}`", form, row.default, row.doc, row.since)
        return f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in cells)} |"
