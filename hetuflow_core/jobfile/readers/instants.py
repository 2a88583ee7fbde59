from __future__ import annotations

from hetuflow_core.fields.instants import INSTANT

read_instant = INSTANT.read
