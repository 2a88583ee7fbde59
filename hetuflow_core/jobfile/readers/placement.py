from __future__ import annotations

from collections.abc import Mapping

from hetuflow_core.fields.value_reader import ValueReader
from hetuflow_core.placement import PLACEMENT, Requirements


def read_requirements(given: ValueReader, _unsupported: Mapping[str, str]) -> Requirements | None:
    return PLACEMENT.read(given)
