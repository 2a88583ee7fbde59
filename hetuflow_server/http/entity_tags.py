"""Entity tags: whoever edits says what it has read, and is refused when that is no longer so.

A tag stands for what people can edit, not for what runs along with it: that a schedule fires changes none.
"""

from __future__ import annotations

from hashlib import blake2b

import msgspec

from hetuflow_core.errors import Stale
from hetuflow_core.resources.jobs import Job
from hetuflow_core.resources.schedules import Calendar, Schedule

# What people read and edit as a document.
Document = Job | Schedule | Calendar


def etag_of(shown: Document) -> str:
    if isinstance(shown, Calendar):
        # Its time of birth tells it from one that had the name before.
        known = [shown.namespace, shown.name, shown.created_at, shown.version, shown.spec]
    else:
        known = [shown.id, shown.version, shown.enabled, shown.spec]
    # jsonb keeps keys in one order, so equal documents are equal bytes.
    return f'"{blake2b(msgspec.json.encode(known), digest_size=12).hexdigest()}"'


def refuse_stale(shown: Document, if_match: str | None) -> None:
    """Refuse an edit that names tags none of which is the current one; none named means: whatever it is."""
    if if_match is None or if_match.strip() == "*":
        return
    if etag_of(shown) not in {tag.strip() for tag in if_match.split(",")}:
        raise Stale(f"{shown.name} has been changed since it was read: read it again and repeat the change.")
