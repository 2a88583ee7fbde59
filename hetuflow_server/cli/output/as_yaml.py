"""Results as YAML, in the order of the API's fields."""

from __future__ import annotations

from typing import Any

import msgspec
import yaml


def as_yaml(value: Any) -> str:
    text: str = yaml.safe_dump(msgspec.to_builtins(value), sort_keys=False, allow_unicode=True)
    return text.rstrip("\n")
