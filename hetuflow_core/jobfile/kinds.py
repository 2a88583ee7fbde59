"""The kinds of documents, and what documents of every kind have."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final, TypeAlias

from hetuflow_core.fields import LABELS, NAME, Key

DEFAULT_NAMESPACE: Final = "default"


class Kind(StrEnum):
    JOB = "job"
    NAMESPACE = "namespace"
    CALENDAR = "calendar"
    LIMIT = "limit"
    SECRET = "secret"  # noqa: S105 (the name of a kind)
    WEBHOOK = "webhook"
    ALERT = "alert"


# Kinds that this version does not support yet: a document that is accepted is obeyed.
UNSUPPORTED_KINDS: Final = frozenset({Kind.ALERT})

Namespace: TypeAlias = Annotated[str, NAME, Key("Namespace that the document belongs to.")]
Labels: TypeAlias = Annotated[dict[str, str], LABELS, Key("Facts about the document, for people and lists.")]
