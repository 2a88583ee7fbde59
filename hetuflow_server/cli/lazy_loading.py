"""Load modules only when they are used, which keeps the start of commands fast.

Import rules do not see these imports, so `hetuflow` imports modules by name only here.
"""

from __future__ import annotations

import importlib
from typing import Any


def load(reference: str) -> Any:
    """Return the object or module that `package.module:name` or `package.module` refers to."""
    module_name, _, name = reference.partition(":")
    module = importlib.import_module(module_name)
    return getattr(module, name) if name else module
