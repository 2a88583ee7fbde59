"""`hetuflow config check|show|write`."""

from __future__ import annotations

from hetuflow_core.runtime.config_command import config_commands, config_option
from hetuflow_server.settings import ServerSettings

__all__ = ["config_group", "config_option"]

config_group = config_commands(ServerSettings)
