"""The `[log]` section, which every program reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from hetuflow_core.runtime.config.keys import Setting, SettingsSection


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings(SettingsSection):
    """The log of the program itself; task logs are stored separately."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Setting("Lowest level of messages that are written.")
    ] = "info"
    format: Annotated[
        Literal["auto", "console", "json"],
        Setting(
            "`console` is readable text, `json` is one object per line; `auto` is `console` on a terminal."
        ),
    ] = "auto"
    folder: Annotated[
        Path | None,
        Setting(
            "Folder for rotated log files instead of standard error: `hetuflow-server.log` or "
            "`hetuflow-agent.log`.",
            example=Path("/var/log/hetuflow"),
        ),
    ] = None
    file_size: Annotated[
        int, Setting("Largest size of a log file in bytes; then a new file is started.", least=16 * 1024)
    ] = 10 * 1024**2
    files: Annotated[
        int,
        Setting("Number of old log files that are kept, in addition to the current one.", least=1, most=1000),
    ] = 5
