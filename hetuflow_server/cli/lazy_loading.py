"""Parts of the command line that are loaded only when they are used."""

from __future__ import annotations

import importlib
from typing import Any


def load(reference: str) -> Any:
    """What `package.module:name` refers to."""
    module, _, name = reference.partition(":")
    return getattr(importlib.import_module(module), name)
