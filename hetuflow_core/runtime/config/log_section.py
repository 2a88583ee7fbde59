"""The `[log]` section, which every program reads."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Annotated, Literal

from hetuflow_core.runtime.config.keys import Key, Section


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings(Section):
    """What a program writes about itself; logs of tasks are kept elsewhere."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Key("Least important messages that are written.")
    ] = "info"
    format: Annotated[
        Literal["auto", "console", "json"],
        Key("`console` is for people, `json` is one object per line; `auto` is `console` on a terminal."),
    ] = "auto"
    folder: Annotated[
        Path | None,
        Key(
            "Folder for the log, instead of standard error: `hetuflow-server.log` or `hetuflow-agent.log`, "
            "which are rotated.",
            example=Path("/var/log/hetuflow"),
        ),
    ] = None
    file_size: Annotated[
        int, Key("Bytes a file of the log may have; then the next one is begun.", least=16 * 1024)
    ] = 10 * 1024**2
    files: Annotated[
        int, Key("How many files of the log are kept, beside the one that is written.", least=1, most=1000)
    ] = 5
