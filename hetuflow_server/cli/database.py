"""The database of commands that need no server."""

from __future__ import annotations

import os
from pathlib import Path

from hetuflow_core.errors import ConfigInvalid
from hetuflow_core.runtime.config.loading import load_settings
from hetuflow_server.cli.connection import read_dev_info
from hetuflow_server.settings import StoreSettings


def find_database(config_path: Path | None, *, folder: Path) -> StoreSettings:
    """Return the configured database, or that of this folder's running development system."""
    try:
        return load_settings(StoreSettings, config_path=config_path)
    except ConfigInvalid as error:
        dev = read_dev_info(folder) if config_path is None and _only_lacks_database(error) else None
        if dev is None or dev.database_url is None:
            raise
    return load_settings(StoreSettings, env={**os.environ, "HETUFLOW_DATABASE__URL": dev.database_url})


def _only_lacks_database(error: ConfigInvalid) -> bool:
    """Return whether the missing database URL is the only fault; other faults must be reported."""
    return [(fault.field, fault.message.startswith("is required")) for fault in error.faults] == [
        ("database.url", True)
    ]
