"""The schema revisions this code carries, read from the names of the migration files.

alembic would have to be loaded at every start of a server, only to check for new migrations.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import hetuflow_server


def migrations_directory() -> Path:
    """Return the folder of the migrations: inside an installed package, or at the top of a source tree."""
    package = Path(hetuflow_server.__file__).parent
    installed = package / "_migrations"
    return installed if installed.is_dir() else package.parent / "migrations"


@cache
def known_revisions() -> tuple[frozenset[str], str]:
    """Return all revisions, and the newest: files are numbered, and each revises the previous one."""
    files = (migrations_directory() / "versions").glob("[0-9]*_*.py")
    revisions = frozenset(file.name.partition("_")[0] for file in files)
    if not revisions:
        raise RuntimeError("the migrations folder is empty")
    return revisions, max(revisions)
