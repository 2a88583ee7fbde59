"""Loads parts of the command line when they are used: `hetuflow` starts quickly only without the others.

Import rules do not see these imports, so modules are imported by name in no other place of `hetuflow`.
"""

from __future__ import annotations

import importlib
from typing import Any


def load(reference: str) -> Any:
    """What `package.module:name` or `package.module` refers to."""
    module_name, _, name = reference.partition(":")
    module = importlib.import_module(module_name)
    return getattr(module, name) if name else module
