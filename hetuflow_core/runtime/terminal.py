"""Whether a stream is a terminal, and whether to use colour."""

from __future__ import annotations

import os
from typing import TextIO


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except (ValueError, AttributeError):  # closed, or absent as in a process started without stderr
        return False


def coloured(stream: TextIO) -> bool:
    """Follow the conventions of no-color.org and force-color.org: an empty variable counts as unset."""
    if os.environ.get("NO_COLOR"):
        return False
    if os.environ.get("FORCE_COLOR"):
        return True
    return is_terminal(stream) and os.environ.get("TERM") != "dumb"
