"""`hetuflow config check|show|write`."""

from __future__ import annotations

from hetuflow_core.runtime.config.command import config_commands, config_option
from hetuflow_server.cli.lazy_loading import load
from hetuflow_server.settings import ServerSettings

__all__ = ["config_group", "config_option"]


def _host_note() -> str | None:
    note: str | None = load("hetuflow_server.http.listening:descriptor_note")()
    return note


def _facts() -> list[str]:
    return [load("hetuflow_core.jobfile.leases:outage_survived")()]


config_group = config_commands(ServerSettings, host_note=_host_note, facts=_facts)
