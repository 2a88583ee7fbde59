"""The names of signals that end processes, with their numbers on Linux: agents report numbers."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

SIGNALS: Final[Mapping[str, int]] = {
    "HUP": 1,
    "INT": 2,
    "QUIT": 3,
    "ILL": 4,
    "TRAP": 5,
    "ABRT": 6,
    "BUS": 7,
    "FPE": 8,
    "KILL": 9,
    "USR1": 10,
    "SEGV": 11,
    "USR2": 12,
    "PIPE": 13,
    "ALRM": 14,
    "TERM": 15,
    "XCPU": 24,
    "XFSZ": 25,
    "SYS": 31,
}
SIGNAL_NAMES: Final[Mapping[int, str]] = {number: name for name, number in SIGNALS.items()}
