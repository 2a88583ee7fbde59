"""Read the values of secrets on the client."""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from hetuflow_core.errors import Fault, Invalid, NotFound
from hetuflow_core.jobfile import SecretSource, SecretSpec
from hetuflow_core.secret_values import value_fault, without_line_end


def with_value(spec: SecretSpec, document: dict[str, Any], place: str, folder: Path) -> dict[str, Any]:
    """Return the document with the value, read from the source that the document names."""
    value = spec.value
    match spec.source:
        case SecretSource.ENV:
            value = from_environment(spec.source_name or "", os.environ)
        case SecretSource.FILE:
            value = from_file(str(folder / (spec.source_name or "")))
        case SecretSource.STDIN:
            value = from_stdin()
    fault = value_fault(value or "")
    if fault is not None:
        raise Invalid("The value of a secret is not valid.", faults=[Fault(f"{place} from", fault)])
    return {**document, "value": value}


def from_environment(name: str, environ: Mapping[str, str]) -> str:
    if name not in environ:
        raise NotFound(f"The variable {name} is not set: export it, or use another source.")
    return environ[name]


def from_file(name: str) -> str:
    try:
        return _text(Path(name).read_bytes(), name)
    except OSError as error:
        raise Invalid(f"{name} cannot be read ({error.strerror}).") from None


def from_stdin() -> str:
    return _text(sys.stdin.buffer.read(), "standard input")


def _text(content: bytes, source: str) -> str:
    try:
        return without_line_end(content.decode())
    except UnicodeDecodeError:
        raise Invalid(f"{source} is not UTF-8: encode it as base64 first.") from None
