"""The `[log]` section, which every program reads."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Annotated, Literal

from hetuflow_core.runtime.config_keys import Key, Section


@dataclass(frozen=True, slots=True, kw_only=True)
class LogSettings(Section):
    """What a program writes about itself to standard error; logs of tasks are kept elsewhere."""

    level: Annotated[
        Literal["debug", "info", "warning", "error"], Key("Least important messages that are written.")
    ] = "info"
    format: Annotated[
        Literal["auto", "console", "json"],
        Key("`console` is for people, `json` is one object per line; `auto` is `console` on a terminal."),
    ] = "auto"
