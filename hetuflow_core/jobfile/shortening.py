"""Documents as people would write them: without what is so anyway."""

from __future__ import annotations

from typing import Any

from hetuflow_core.errors import Invalid
from hetuflow_core.fields import shape_of
from hetuflow_core.jobfile.documents import to_document
from hetuflow_core.jobfile.loading import load_documents
from hetuflow_core.jobfile.parsing import raw_document


def shortened_document(document: dict[str, Any]) -> dict[str, Any]:
    """Return what `to_document` gave without its defaults; it reads as the same."""
    (spec,) = load_documents([raw_document(document)])
    short = shape_of(type(spec)).write_short(spec)
    try:
        same = load_documents([raw_document(short)]) == [spec]
    except Invalid:
        same = False
    # In the order people write things in, which a database does not keep.
    return short if same else to_document(spec)
