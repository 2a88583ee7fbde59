"""Read job files into the documents of a request, and map the server's faults to file positions."""

from __future__ import annotations

import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Final

from hetuflow_core.errors import Fault, Invalid, NotFound
from hetuflow_core.fields.nodes import Node, field_name
from hetuflow_core.jobfile import (
    Document,
    Kind,
    RawDocument,
    SecretSpec,
    load_documents,
    parse_documents,
    to_document,
)
from hetuflow_core.jobfile.parsing import SUFFIXES
from hetuflow_server.cli.options.secret_sources import with_value

STANDARD_INPUT: Final = "-"
# The field name of a document in the server's faults.
_PLACE: Final = re.compile(r"documents\[(?P<index>\d+)\]\.?")


@dataclass(frozen=True, slots=True)
class PlacedDocument:
    content: dict[str, Any]
    # Position in the file, such as `jobs.yaml:12:1`.
    place: str


def read_files(names: Sequence[str], *, namespace: str | None) -> list[PlacedDocument]:
    """Read the documents of all files; `namespace` is set where a document names none.

    They are validated here, where line and column are known; the server validates them again.
    """
    if names.count(STANDARD_INPUT) > 1:
        raise Invalid("Standard input can be read only once: give -f - once.")
    files = [file for name in names for file in _files(name)]
    documents = [_with_namespace(raw, namespace) for file in dict.fromkeys(files) for raw in _read(file)]
    # Send the parsed documents: an unquoted 1.10 in `env` is text, but as a JSON number it would be 1.1.
    return [_placed(raw, spec) for raw, spec in zip(documents, load_documents(documents), strict=True)]


def with_file_positions(faults: Sequence[Fault], documents: Sequence[PlacedDocument]) -> list[Fault]:
    """Replace the document index in faults by the position in the file."""
    return [_with_file_position(fault, documents) for fault in faults]


def _placed(raw: RawDocument, spec: Document) -> PlacedDocument:
    place, document = field_name(raw.source, raw.path, raw.root.position), to_document(spec)
    if isinstance(spec, SecretSpec):
        document = with_value(spec, document, place, Path(raw.source).parent)
    return PlacedDocument(document, place)


def _files(name: str) -> list[str]:
    """Return the file, or all job files below a folder sorted by name."""
    folder = Path(name)
    if name == STANDARD_INPUT or not folder.is_dir():
        return [name]
    paths = [
        path
        for path in sorted(folder.rglob("*"))
        if path.suffix.removeprefix(".").lower() in SUFFIXES
        and path.is_file()
        and not any(part.startswith(".") for part in path.relative_to(folder).parts)
    ]
    if not paths:
        endings = ", ".join(f".{suffix}" for suffix in SUFFIXES)
        raise Invalid(f"The folder {name} contains no job files ({endings}).")
    return [str(path) for path in paths]


def _read(name: str) -> list[RawDocument]:
    if name == STANDARD_INPUT:
        return parse_documents(_decoded(sys.stdin.buffer.read(), "standard input"), "yaml", "standard input")
    try:
        content = Path(name).read_bytes()
    except FileNotFoundError:
        raise NotFound(f"There is no file {name}: check the name.") from None
    except OSError as error:
        raise Invalid(f"{name} cannot be read ({error.strerror}).") from None
    return parse_documents(_decoded(content, name), None, name)


def _decoded(content: bytes, source: str) -> str:
    try:
        return content.decode()
    except UnicodeDecodeError:
        raise Invalid(f"{source} is not UTF-8: save it as UTF-8.") from None


def _with_namespace(raw: RawDocument, namespace: str | None) -> RawDocument:
    """Set the namespace of a document that names none; namespace documents have none."""
    keys = raw.root.value
    if namespace is None or not isinstance(keys, Mapping) or _value(keys, "kind") == Kind.NAMESPACE:
        return raw
    if _value(keys, "namespace") is not None:
        return raw
    return replace(raw, root=replace(raw.root, value={**keys, "namespace": Node(namespace)}))


def _value(keys: Mapping[str, Node], name: str) -> Any:
    return keys[name].value if name in keys else None


def _with_file_position(fault: Fault, documents: Sequence[PlacedDocument]) -> Fault:
    match = _PLACE.match(fault.field)
    if match is None or int(match["index"]) >= len(documents):
        return fault
    place, path = documents[int(match["index"])].place, fault.field[match.end() :]
    return Fault(f"{place} {path}".rstrip(), fault.message)
