"""What an importer gives: documents, what is to be read above them, and what was lost."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from hetuflow_core.jobfile import write_yaml

_UNNAMEABLE: Final = re.compile(r"[^a-z0-9._-]+")
_LONGEST: Final = 60


@dataclass(frozen=True, slots=True)
class Imported:
    # None: nothing could be made of it.
    document: dict[str, Any] | None
    # Where it was, such as `crontab:3`.
    place: str
    # What people had written about it.
    comments: tuple[str, ...] = ()
    # What could not be carried over, or has to be seen to.
    losses: tuple[str, ...] = ()


class Names:
    """Names that are allowed, and given once."""

    def __init__(self) -> None:
        self._taken: set[str] = set()

    def take(self, wanted: str) -> str:
        base = _UNNAMEABLE.sub("-", wanted.lower()).strip("._-")[:_LONGEST].strip("._-") or "job"
        name, number = base, 2
        while name in self._taken:
            name, number = f"{base}-{number}", number + 1
        self._taken.add(name)
        return name


def as_yaml(imported: Sequence[Imported]) -> str:
    """One job file; comments tell where a document is from and what is missing."""
    return "---\n".join(text_of(one) for one in imported if one.document is not None)


def text_of(one: Imported) -> str:
    lines = [*one.comments, f"From {one.place}.", *(f"Not carried over: {loss}" for loss in one.losses)]
    written = "".join(f"# {line}\n" for text in lines for line in text.splitlines())
    return written + write_yaml([one.document or {}])
