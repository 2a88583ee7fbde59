"""The streams of a log."""

from __future__ import annotations

from typing import Final

# What the server and the agent write about an attempt; `stdout` and `stderr` are what the attempt writes.
SYSTEM: Final = "system"
STREAMS: Final = frozenset({"stdout", "stderr", SYSTEM})
