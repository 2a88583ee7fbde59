"""Files and request bodies to raw documents.

A file holds one document or several. YAML separates them with `---`. In every format a file may instead be
a list of documents, or a mapping with the single key `documents` that holds such a list; TOML, which has
neither separators nor lists at the top, writes several as `[[documents]]`.

Times stay text in every format, so that the same words mean the same everywhere.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Literal, TypeAlias

from hetuflow_core.errors import Invalid, TooLarge
from hetuflow_core.fields.nodes import CODE, Budget, Node, item_path, node_of
from hetuflow_core.jobfile.formats.json_nodes import read_json
from hetuflow_core.jobfile.formats.toml_nodes import read_toml
from hetuflow_core.jobfile.formats.yaml_nodes import read_yaml

LARGEST_FILE: Final = 1024 * 1024

Format: TypeAlias = Literal["yaml", "toml", "json"]

SUFFIXES: Final[dict[str, Format]] = {"yaml": "yaml", "yml": "yaml", "toml": "toml", "json": "json"}
_SEVERAL: Final = "documents"


@dataclass(frozen=True, slots=True)
class RawDocument:
    """A document that has been read and not yet looked at; `path` is its place in its file or request."""

    root: Node
    source: str = ""
    path: str = ""


def parse_documents(
    text: str,
    format: Format | None,  # noqa: A002 (the word users know it by)
    source: str,
) -> list[RawDocument]:
    """Read a file; without a format its name decides, and what has no telling name is read as YAML."""
    try:
        size = len(text.encode())
    except UnicodeEncodeError:
        raise Invalid(f"{source or 'The text'} is not UTF-8: save it as UTF-8.", code=CODE) from None
    if size > LARGEST_FILE:
        raise TooLarge(
            f"{source or 'The text'} is larger than {LARGEST_FILE // 1024} KiB: split it into several files.",
            code="job.too_large",
        )
    chosen = format or SUFFIXES.get(source.lower().rpartition(".")[2], "yaml")
    content = text.removeprefix("\ufeff")
    roots = read_yaml(content, source) if chosen == "yaml" else [_READERS[chosen](content, source)]
    documents = [document for root in roots for document in _split(RawDocument(root, source))]
    if not documents:
        raise Invalid(f"{source or 'The text'} contains no document: write one with kind: job.", code=CODE)
    return documents


def raw_document(value: Any, path: str = "") -> RawDocument:
    """A document that came as JSON, or out of the database; faults name its fields below `path`."""
    return RawDocument(node_of(value, source="", path=path, budget=Budget()), path=path)


def raw_documents(values: Iterable[Any], path: str = _SEVERAL) -> list[RawDocument]:
    """The documents of a request; faults name them `documents[0]` and so on."""
    budget = Budget()
    return [
        RawDocument(node_of(value, source="", path=place, budget=budget), path=place)
        for place, value in ((item_path(path, index), value) for index, value in enumerate(values))
    ]


def _split(document: RawDocument) -> list[RawDocument]:
    value, path = document.root.value, ""
    if isinstance(value, Mapping) and value.keys() == {_SEVERAL}:
        value, path = value[_SEVERAL].value, _SEVERAL
    if isinstance(value, tuple):
        return [
            RawDocument(item, document.source, item_path(path, index)) for index, item in enumerate(value)
        ]
    return [document]


_READERS: Final = {"json": read_json, "toml": read_toml}
