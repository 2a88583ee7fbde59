"""The schema revisions this code carries, read from the names of the migration files.

Asking alembic would load all of it whenever a server starts, just to know whether it is up to date.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import hetuflow_server


def migrations_directory() -> Path:
    """Return where the migrations are: inside an installed package, at the top of a source tree."""
    package = Path(hetuflow_server.__file__).parent
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


@cache
def known_revisions() -> tuple[frozenset[str], str]:
    """Return all revisions, and the newest: files are numbered and each follows the one before."""
    files = (migrations_directory() / "versions").glob("[0-9]*_*.py")
    revisions = frozenset(file.name.partition("_")[0] for file in files)
    if not revisions:
        raise RuntimeError("the migrations folder is empty")
    return revisions, max(revisions)
